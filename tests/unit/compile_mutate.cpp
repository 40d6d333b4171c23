#include "compile_mutate.hpp"

#include "compile_mutations.hpp"
#include "ir/print.hpp"

#include <doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace quadrille::test {
namespace {

constexpr int full_per_kind = 10, per_kind = QUADRILLE_SAMPLED ? 1 : full_per_kind;  // mutants of each kind for each subject

struct Row {
    const char* kind;
    int made = 0, caught = 0, harmless = 0, missed = 0;
};
struct Place {
    std::size_t coordinate, op;
};

class Judge {
  public:
    Judge(const NamedSubject& named, std::uint64_t seed) : name_(named.name), subject_(named.config, named.workspace), random_(seed) {
        const Faults faults = verify(subject_.compiled.programs, subject_.one);
        if (!faults.empty()) FAIL(name_ << " is refused before it is broken: " << text(subject_.compiled.programs, faults[0]));
        subject_.settings.unsent = 0.25;  // of programs that compress gradients: what they leave out must come back
        truth_ = interpret(subject_.compiled.programs, subject_.settings);
    }

    void try_kind(const MutationKind& kind, std::size_t count, Row& row) {
        std::vector<Place> places;
        for (std::size_t r = 0; r < programs().size(); ++r)
            for (std::size_t i = 0; i < programs()[r].ops.size(); ++i)
                if (kind.applies(programs()[r], programs()[r].ops[i])) places.push_back({r, i});
        for (std::size_t made = 0; made < count && !places.empty();) {
            const std::size_t pick = random_.below(places.size());
            const Place place = places[pick];
            places.erase(places.begin() + static_cast<std::ptrdiff_t>(pick));
            std::vector<Program> broken = programs();
            try {
                if (!kind.mutate({broken[place.coordinate], place.op, random_})) continue;
            } catch (const TypingError&) {
                continue;  // the change cannot even be written down
            }
            ++made;
            ++row.made;
            judge(kind, place, broken, row);
        }
    }

  private:
    const std::vector<Program>& programs() const { return subject_.compiled.programs; }

    std::string what(const MutationKind& kind, const Place& place) const {
        return fmt::format("{}, {}: pp {} {}", name_, kind.name, place.coordinate, text(programs()[place.coordinate], place.op));
    }

    void judge(const MutationKind& kind, const Place& place, const std::vector<Program>& broken, Row& row) {
        Faults faults;
        try {
            faults = verify(broken, subject_.one);
        } catch (const std::exception& e) {
            FAIL_CHECK("the verifier itself fails: " << e.what() << "\n  " << what(kind, place));
            ++row.missed;
            return;
        }
        if (!faults.empty()) {
            ++row.caught;
            const bool line = faults[0].coordinate >= 0 && faults[0].op >= 0 && !text(broken, faults[0]).empty();
            if (!line) FAIL_CHECK("refused without the op's line: " << faults[0].reason << "\n  " << what(kind, place));
            return;
        }
        std::string why;
        try {
            Settings settings = subject_.settings;
            settings.poison = false;  // lifetimes are those of the unbroken order
            const double d = difference(interpret(broken, settings), truth_);
            if (!(d < 1e-10)) why = fmt::format("numbers differ by {:.3g}", d);
        } catch (const std::exception& e) {
            why = e.what();
        }
        if (why.empty()) {
            ++row.harmless;
            return;
        }
        ++row.missed;
        FAIL_CHECK("accepted by the verifier, and harmful: " << why << "\n  " << what(kind, place));
    }

    const char* name_;
    Subject subject_;
    Random random_;
    Numbers truth_;
};

}  // namespace

const std::vector<Share>& shares() {
    static const std::vector<Share> all = [] {
        std::vector<Share> out = {
            {"tensor and data parallel", 2000,
             {"receive late", "receive early", "send late", "payloads of sends exchanged", "wrong peer", "message relabelled", "ring turn skipped",
              "mask of documents forgotten"}},
            {"sequence parallel", 1800,
             {"receive late", "receive early", "send late", "payloads of sends exchanged", "wrong peer", "message relabelled",
              "wrong key-value group", "loss scale forgotten", "another power of the loss scale"}},
            {"pipelines", 2800,
             {"sum over fewer axes", "ring one step short", "ring turn repeated", "ring turn skipped", "nesting of cuts exchanged",
              "wrong key-value group", "mask of documents forgotten"}},
        };
        // Programs whose state is whole have nothing that shards are made of.
        for (Share& s : out)
            s.lacks.insert({"gather of another unit", "the copy of an earlier gather", "gather behind its use", "scatter to another rank's slice",
                            "... and sums there", "scatter of another sum", "scatter made twice", "sum over replicas dropped",
                            "sum over replicas made twice", "old weights gathered", "new weights not gathered"});
        out.push_back({"zero", 2800, {"wrong key-value group", "mask of documents forgotten"}});
        for (Share& s : out)  // no tier but the device's
            for (const MutationKind& kind : tier_mutations()) s.lacks.insert(kind.name);
        out.push_back({"offload", 2500,
                       {"ring turn skipped", "nesting of cuts exchanged", "wrong key-value group", "mask of documents forgotten",
                        "the copy of an earlier gather", "gather behind its use", "sum over replicas dropped",
                        "sum over replicas made twice", "old weights gathered"}});
        for (Share& s : out)  // nothing is compressed
            for (const MutationKind& kind : packet_mutations()) s.lacks.insert(kind.name);
        out.push_back({"compressed gradients", 2800,
                       {"ring turn skipped", "wrong key-value group", "squares of other parameters", "squares of other parameters, typed",
                        "dropped activation read", "dropout stream changed", "dropout rate changed", "mask of documents forgotten",
                        "the copy of an earlier fetch"}});
        // What is received is copied at once to where it is read, and nothing but that copy reads it.
        out.push_back({"through host memory", 2800,
                       {"receive late", "ring turn repeated", "the copy of an earlier gather", "old weights gathered"}});
        return out;
    }();
    return all;
}

std::vector<MutationKind> all_mutations() {
    std::vector<MutationKind> kinds;
    for (const auto& list : {move_mutations(), sum_mutations(), memory_mutations(), meaning_mutations(), zero_mutations(), tier_mutations(),
                             packet_mutations()})
        kinds.insert(kinds.end(), list.begin(), list.end());
    return kinds;
}

void break_and_judge(const char* share, const std::vector<NamedSubject>& subjects) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<MutationKind> kinds = all_mutations();
    std::vector<Row> rows;
    for (const MutationKind& k : kinds) rows.push_back({k.name});
    std::uint64_t seed = 1;
    for (const NamedSubject& s : subjects) {
        Judge judge(s, seed++);
        for (std::size_t k = 0; k < kinds.size(); ++k) judge.try_kind(kinds[k], per_kind, rows[k]);
    }
    Row all{"all"};
    std::printf("%-36s%8s%8s%10s%8s\n", "mutation", "made", "caught", "harmless", "missed");
    for (const Row& r : rows) {
        std::printf("%-36s%8d%8d%10d%8d\n", r.kind, r.made, r.caught, r.harmless, r.missed);
        all.made += r.made, all.caught += r.caught, all.harmless += r.harmless, all.missed += r.missed;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%-36s%8d%8d%10d%8d   %zu kinds, %zu subjects, %.1f s\n", all.kind, all.made, all.caught, all.harmless,
                all.missed, kinds.size(), subjects.size(), seconds);
    CHECK(all.missed == 0);
    const auto mine = std::find_if(shares().begin(), shares().end(), [&](const Share& s) { return s.name == std::string_view(share); });
    REQUIRE(mine != shares().end());
    CHECK(all.made >= mine->least * per_kind / full_per_kind);
    for (const Row& r : rows) CHECK_MESSAGE((r.made > 0) == !mine->lacks.count(r.kind), std::string(r.kind) << " was made " << r.made << " times");
}

}  // namespace quadrille::test
