#include "runtime/index_lists.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace quadrille {

const IndexList& IndexLists::of(TypeId type, int dim, std::int64_t shift) {
    const auto [it, fresh] = lists_.try_emplace({type, dim, shift});
    if (fresh) {
        it->second.host = indices(tables_.grid(), tables_.type(type), dim, at_);
        for (std::int64_t& i : it->second.host) i += shift;
        it->second.device = device_.list(it->second.host);
    }
    return it->second;
}

const IndexList& IndexLists::samples(TypeId type, std::int64_t microbatch) {
    return of(type, 0, std::max<std::int64_t>(microbatch, 0) * tables_.type(type).shape[0]);
}

const IndexList& IndexLists::kv_heads(TypeId q, TypeId k) {
    const auto [it, fresh] = kv_heads_.try_emplace({q, k, 0});
    if (!fresh) return it->second;
    const std::int64_t sharers = tables_.type(q).shape[2] / tables_.type(k).shape[2];
    const auto& here = of(k, 2).host;
    for (const std::int64_t head : of(q, 2).host) {
        const auto found = std::find(here.begin(), here.end(), head / sharers);
        require(found != here.end(), "runtime: a query head's key-value head is not on its rank");
        it->second.host.push_back(found - here.begin());
    }
    it->second.device = device_.list(it->second.host);
    return it->second;
}

}  // namespace quadrille
