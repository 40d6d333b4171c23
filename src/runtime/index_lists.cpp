#include "runtime/index_lists.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace quadrille {

const std::vector<std::int64_t>& IndexLists::of(TypeId type, int dim, std::int64_t shift) {
    const auto [it, fresh] = lists_.try_emplace({type, dim, shift});
    if (fresh) {
        it->second = indices(tables_.grid(), tables_.type(type), dim, at_);
        for (std::int64_t& i : it->second) i += shift;
    }
    return it->second;
}

const std::vector<std::int64_t>& IndexLists::samples(TypeId type, std::int64_t microbatch) {
    return of(type, 0, std::max<std::int64_t>(microbatch, 0) * tables_.type(type).shape[0]);
}

const std::vector<std::int64_t>& IndexLists::kv_heads(TypeId q, TypeId k) {
    const auto [it, fresh] = kv_heads_.try_emplace({q, k, 0});
    if (!fresh) return it->second;
    const std::int64_t sharers = tables_.type(q).shape[2] / tables_.type(k).shape[2];
    const auto& here = of(k, 2);
    for (const std::int64_t head : of(q, 2)) {
        const auto found = std::find(here.begin(), here.end(), head / sharers);
        require(found != here.end(), "runtime: a query head's key-value head is not on its rank");
        it->second.push_back(found - here.begin());
    }
    return it->second;
}

}  // namespace quadrille
