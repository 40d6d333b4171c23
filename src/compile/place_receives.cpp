#include "compile/instantiate.hpp"
#include "compile/message.hpp"

#include <map>

namespace quadrille {
namespace {

class Simulation {
  public:
    explicit Simulation(std::vector<Step>& steps) : steps_(steps), todo_(steps.size()), at_(steps.size(), 0), missing_(steps.size()) {
        for (std::size_t r = 0; r < steps.size(); ++r) {
            Program& p = steps[r].program;
            missing_[r].assign(p.tensors.size(), false);
            for (const Op& op : p.ops) {
                if (op.kind != Kind::recv) { todo_[r].push_back(op); continue; }
                receives_[message_of(p, op)] = op;
                missing_[r][static_cast<std::size_t>(p.outputs(op)[0])] = true;
            }
            p.ops.clear();
        }
    }

    void run() {
        for (bool moving = true; moving;) {
            moving = false;
            for (std::size_t r = 0; r < steps_.size(); ++r) moving = advance(r) || moving;
        }
        for (std::size_t r = 0; r < steps_.size(); ++r)
            if (at_[r] < todo_[r].size())
                throw TypingError(fmt::format("the schedule cannot finish: pp coordinate {} waits at op {}", r, at_[r]));
    }

  private:
    // Runs coordinate r until it waits for a message or has sent one, so that the coordinates stay in step.
    bool advance(std::size_t r) {
        Program& p = steps_[r].program;
        bool moved = false;
        while (at_[r] < todo_[r].size()) {
            const Op& op = todo_[r][at_[r]];
            for (const TensorId t : p.inputs(op))
                if (missing_[r][static_cast<std::size_t>(t)]) return moved;
            p.ops.push_back(op);
            ++at_[r];
            moved = true;
            if (op.kind != Kind::send) continue;
            const auto peer = static_cast<std::size_t>(p.attributes(op).peer);
            const Op& receive = receives_.at(message_of(p, op));
            Program& q = steps_[peer].program;
            q.ops.push_back(receive);
            missing_[peer][static_cast<std::size_t>(q.outputs(receive)[0])] = false;
            return moved;
        }
        return moved;
    }

    std::vector<Step>& steps_;
    std::vector<std::vector<Op>> todo_;
    std::vector<std::size_t> at_;
    std::vector<std::vector<bool>> missing_;  // not yet sent
    std::map<Message, Op> receives_;
};

}  // namespace

void place_receives(std::vector<Step>& steps) { Simulation(steps).run(); }

}  // namespace quadrille
