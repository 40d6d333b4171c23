#include "record/console.hpp"

#include "base/format.hpp"
#include "base/say.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace quadrille {

Console::Console(ConsoleSettings settings, std::FILE* out, std::FILE* err)
    : settings_(settings), out_(out), err_(err), terminal_(::isatty(::fileno(out)) == 1 && ::isatty(::fileno(err)) == 1) {}

Console::~Console() { clear_line(); }

// Speed is the mean since the last printed line, and so is the time left.
std::string Console::progress_line(const StepRow& row) const {
    const double per_step = seconds_ / static_cast<double>(steps_);
    const std::string mfu =
        settings_.peak_flops > 0 && per_step > 0 ? format_percent(settings_.model_flops / per_step, settings_.peak_flops) : "n/a";
    const std::string scale = settings_.loss_scale ? fmt::format("  loss scale {:.0f}", row.loss_scale) : "";
    return fmt::format("step {:>{}}/{}  loss {:.6f}  grad norm {:.4g}{}  lr {:.3e}  {} tokens/s  MFU {}  left {}", row.step,
                       std::to_string(settings_.total_steps).size(), settings_.total_steps, row.loss, row.grad_norm, scale,
                       row.learning_rate, format_count(tokens_ / seconds_), mfu,
                       format_seconds(per_step * static_cast<double>(settings_.total_steps - row.step)));
}

void Console::step(const StepRow& row) {
    if (!settings_.speaks) return;
    seconds_ += row.seconds;
    tokens_ += static_cast<double>(row.tokens);
    ++steps_;
    const bool logged = row.step % settings_.log_interval == 0 || row.step == settings_.total_steps;
    if (!logged && !terminal_) return;
    const std::string line = progress_line(row);
    if (!logged) return redraw(line);
    print(line);
    seconds_ = tokens_ = 0;
    steps_ = 0;
}

// Cut to the terminal's width: a line that wraps cannot be redrawn.
void Console::redraw(const std::string& line) {
    winsize window{};
    const bool known = ::ioctl(::fileno(out_), TIOCGWINSZ, &window) == 0 && window.ws_col > 1;
    const std::string seen = line.substr(0, known ? window.ws_col - 1u : 79u);
    put(fmt::format("\r{}\x1b[K", seen), out_);
    std::fflush(out_);
    drawn_ = true;
}

void Console::clear_line() {
    if (!drawn_) return;
    put("\r\x1b[K", out_);
    std::fflush(out_);
    drawn_ = false;
}

void Console::print(const std::string& text) {
    if (!settings_.speaks) return;
    clear_line();
    put(text + "\n", out_);
    std::fflush(out_);
}

void Console::warning(const std::string& text) {
    if (!settings_.speaks) return;
    clear_line();
    say("warning: " + text, err_);
}

void Console::error(const std::string& text) {
    if (!settings_.speaks) return;
    clear_line();
    say(text, err_);
}

}  // namespace quadrille
