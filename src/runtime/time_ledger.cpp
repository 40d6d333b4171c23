#include "runtime/time_ledger.hpp"

#include <algorithm>

namespace quadrille {

std::string_view name_of(Category c) {
    constexpr std::array<std::string_view, category_count> names = {"compute", "optimizer", "exposed_dp", "exposed_tp", "exposed_sp", "exposed_pp",
                                                                    "pipeline_idle", "exposed_copy", "exposed_disk", "data", "checkpoint",
                                                                    "compression", "other"};
    return names[static_cast<std::size_t>(c)];
}

Category exposed(AxisSet axes) {
    if (!(axes & data_axes).empty()) return Category::exposed_dp;
    if (axes.has(Axis::sp)) return Category::exposed_sp;
    if (!(axes & tensor_axes).empty()) return Category::exposed_tp;
    return Category::exposed_pp;
}

double TimeLedger::charge_split(Category early, Category late, double moment, double now) {
    charge(early, std::clamp(moment, last_, std::max(last_, now)));
    return charge(late, now);
}

}  // namespace quadrille
