"""Few of many combinations in which every two values meet that do in all of them: a fault seldom takes three."""
import itertools


def covering(factors):
    """Rows of one value of each factor such that every two values of two factors meet in some row; greedy, always the same ones."""
    open_pairs = {pair: None for i, a in enumerate(factors) for b in range(i + 1, len(factors)) for pair in
                  itertools.product([(i, x) for x in a], [(b, y) for y in factors[b]])}
    rows = []
    while open_pairs:
        row = dict(next(iter(open_pairs)))
        for i in (i for i in range(len(factors)) if i not in row):
            row[i] = max(factors[i], key=lambda x: sum(tuple(sorted(((i, x), other))) in open_pairs for other in row.items()))
        for pair in itertools.combinations(sorted(row.items()), 2):
            open_pairs.pop(pair, None)
        rows.append([row[i] for i in range(len(factors))])
    return rows


def meeting(cases, values):
    """The fewest cases that a greedy choice finds such that every value and every two that meet in a case do so in a chosen one, in their order.

    `values` gives the set of a case's values.
    """
    pairs = [set(itertools.combinations_with_replacement(sorted(values(case)), 2)) for case in cases]
    missing, chosen = set().union(*pairs), set()
    while missing:
        best = max(range(len(cases)), key=lambda i: len(pairs[i] & missing))
        chosen.add(best)
        missing -= pairs[best]
    return [cases[i] for i in sorted(chosen)]
