// What the programs of one compilation share: types, attributes, names and sets of contributions, each interned once, so that
// an op is a few integers and a rule is applied once per distinct (kind, attributes, operand types).
#pragma once
#include "ir/cover.hpp"
#include "ir/op.hpp"

#include <fmt/core.h>

#include <deque>
#include <span>
#include <unordered_map>

namespace quadrille {

class Tables {
  public:
    explicit Tables(Grid grid);
    const Grid& grid() const { return grid_; }

    TypeId intern(const TensorType&);
    const TensorType& type(TypeId id) const { return types_[static_cast<std::size_t>(id)]; }
    std::int64_t count(TypeId id) const { return counts_[static_cast<std::size_t>(id)]; }  // elements on one rank
    std::int64_t bytes(TypeId id) const { return count(id) * bytes_of(type(id).dtype); }

    AttributesId intern(const Attributes&);
    const Attributes& attributes(AttributesId id) const { return attributes_[static_cast<std::size_t>(id)]; }

    NameId intern(std::string_view name);
    const std::string& name(NameId id) const { return names_[static_cast<std::size_t>(id)]; }

    // Sets of contributions; id 0 is "no running sum". `joined` throws TypingError where the sets overlap (summed twice).
    std::int32_t covers(const Cover& set);
    const Cover& covers(std::int32_t id) const { return covers_[static_cast<std::size_t>(id)]; }
    std::int32_t joined(std::int32_t a, std::int32_t b);

    // The types of the outputs of an op of this kind on inputs of these types, by the kind's rule. Throws TypingError.
    // The answer is remembered, so a rule must depend on nothing else.
    const std::vector<TypeId>& infer(const Op& op, std::span<const TypeId> inputs);

  private:
    struct HashIntegers { std::size_t operator()(const std::vector<std::int32_t>& v) const; };
    Grid grid_;
    std::deque<TensorType> types_;
    std::vector<std::int64_t> counts_;
    std::unordered_multimap<std::uint64_t, TypeId> type_ids_;
    std::deque<Attributes> attributes_;
    std::unordered_multimap<std::uint64_t, AttributesId> attribute_ids_;
    std::deque<std::string> names_;
    std::unordered_map<std::string, NameId> name_ids_;
    std::deque<Cover> covers_;
    std::unordered_map<std::vector<std::int32_t>, std::int32_t, HashIntegers> cover_ids_;
    std::unordered_map<std::uint64_t, std::int32_t> joined_;
    std::unordered_map<std::vector<std::int32_t>, std::vector<TypeId>, HashIntegers> inferred_;
    std::vector<std::int32_t> key_;  // scratch of infer
};

}  // namespace quadrille
