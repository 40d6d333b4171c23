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

Times times_behind(const TimeLedger& thread, std::span<const QueuedTime> ops) {
    Times times{};
    auto charge = thread.charges().begin();
    double last = thread.begin();
    const auto idle_until = [&](double end, Category waited) {
        while (last < end) {
            while (charge != thread.charges().end() && charge->end <= last) ++charge;
            const bool known = charge != thread.charges().end();
            const double next = known ? std::min(end, charge->end) : end;
            at(times, known && charge->category != Category::other ? charge->category : waited) += next - last;
            last = next;
        }
    };
    for (const QueuedTime& op : ops) {
        idle_until(std::min(op.begin, thread.last()), op.waited);
        const double end = std::clamp(op.end, last, std::max(last, thread.last()));
        at(times, op.category) += end - last;
        last = end;
    }
    idle_until(thread.last(), Category::other);
    return times;
}

}  // namespace quadrille
