#include "ir/tables.hpp"

#include "base/error.hpp"
#include "base/random.hpp"
#include "ir/table.hpp"


namespace quadrille {
namespace {

class Hash {
  public:
    template <class T> Hash& operator<<(T x) { h_ = mix64((h_ ^ static_cast<std::uint64_t>(x)) + 0x9E3779B97F4A7C15ull); return *this; }
    std::uint64_t value() const { return h_; }

  private:
    std::uint64_t h_ = 1;
};

std::uint64_t hash(const TensorType& t) {
    Hash h;
    h << t.dims << static_cast<int>(t.dtype) << t.place.partial_sum.bits << t.place.partial_max.bits << t.place.varies.bits
      << static_cast<int>(t.place.holders) << static_cast<int>(t.tier) << static_cast<int>(t.book) << t.covers;
    for (std::size_t d = 0; d < static_cast<std::size_t>(t.dims); ++d) {
        h << t.shape[d] << t.place.cuts[d].count;
        for (const Cut& c : t.place.cuts[d]) h << static_cast<int>(c.axis) << static_cast<int>(c.layout) << c.turn;
    }
    return h.value();
}

// Of what tells most apart; equality decides.
std::uint64_t hash(const Attributes& a) {
    Hash h;
    h << hash_text(a.signature) << static_cast<int>(a.dtype) << a.stream << std::bit_cast<std::uint64_t>(a.rate) << a.inverse
      << a.unexpanded << a.ring << a.carries << a.vocab << static_cast<int>(a.input) << a.peer << a.chunk << a.gradient << a.unit
      << a.which.bits << a.microbatches << static_cast<int>(a.tier);
    for (const TypeId t : a.types) h << t;
    return h.value();
}

}  // namespace

std::size_t Tables::HashIntegers::operator()(const std::vector<std::int32_t>& v) const {
    Hash h;
    for (const std::int32_t x : v) h << x;
    return h.value();
}

Tables::Tables(Grid grid) : grid_(std::move(grid)) {
    names_.emplace_back();
    covers_.emplace_back();
}

TypeId Tables::intern(const TensorType& t) {
    const std::uint64_t key = hash(t);
    const auto [begin, end] = type_ids_.equal_range(key);
    for (auto it = begin; it != end; ++it)
        if (type(it->second) == t) return it->second;
    if (!divides(grid_, t)) throw TypingError(fmt::format("a dim cannot be cut evenly: {}", text(t)));
    const auto id = static_cast<TypeId>(types_.size());
    types_.push_back(t);
    counts_.push_back(local_count(grid_, t));
    type_ids_.emplace(key, id);
    return id;
}

AttributesId Tables::intern(const Attributes& a) {
    const std::uint64_t key = hash(a);
    const auto [begin, end] = attribute_ids_.equal_range(key);
    for (auto it = begin; it != end; ++it)
        if (attributes(it->second) == a) return it->second;
    const auto id = static_cast<AttributesId>(attributes_.size());
    attributes_.push_back(a);
    attribute_ids_.emplace(key, id);
    return id;
}

NameId Tables::intern(std::string_view name) {
    const auto [it, fresh] = name_ids_.try_emplace(std::string(name), static_cast<NameId>(names_.size()));
    if (fresh) names_.emplace_back(name);
    return it->second;
}

std::int32_t Tables::covers(const Cover& set) {
    require(set.size() > 0, "ir: an empty set of contributions");
    std::vector<std::int32_t> key;
    for (const Cover::Run& r : set.runs()) key.insert(key.end(), {r.use, r.first, r.count});
    const auto [it, fresh] = cover_ids_.try_emplace(std::move(key), static_cast<std::int32_t>(covers_.size()));
    if (fresh) covers_.push_back(set);
    return it->second;
}

std::int32_t Tables::joined(std::int32_t a, std::int32_t b) {
    if (!a || !b) throw TypingError("a value that is no running sum is added to one");
    const std::uint64_t key = static_cast<std::uint64_t>(a) << 32 | static_cast<std::uint32_t>(b);
    if (const auto it = joined_.find(key); it != joined_.end()) return it->second;
    return joined_[key] = covers(quadrille::joined(covers(a), covers(b)));
}

const std::vector<TypeId>& Tables::infer(const Op& op, std::span<const TypeId> inputs) {
    key_.assign({static_cast<std::int32_t>(op.kind), op.attributes, (op.writes_sum ? 2 : 0) + (op.adds ? 1 : 0),
                 op.writes_sum ? op.microbatch * 16 + op.use : -1});
    key_.insert(key_.end(), inputs.begin(), inputs.end());
    if (const auto it = inferred_.find(key_); it != inferred_.end()) return it->second;
    auto key = key_;
    return inferred_.emplace(std::move(key), apply_rule(*this, op, inputs)).first->second;
}

}  // namespace quadrille
