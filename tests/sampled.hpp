// How many subjects a test takes: all; in a sanitizer's build, where each costs several times as much and the code is the same over all, a sample,
// unless QUADRILLE_FULL asks for all there too.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

namespace quadrille::test {

// In a sample every `of`th, from that on which comes `turn`th; `of` is at least 1.
template <class T>
std::vector<T> sampled(std::vector<T> all, std::size_t of, std::size_t turn = 0) {
    if (!QUADRILLE_SAMPLED) return all;
    std::vector<T> some;
    for (std::size_t i = turn % of; i < all.size(); i += of) some.push_back(std::move(all[i]));
    return some;
}

}  // namespace quadrille::test
