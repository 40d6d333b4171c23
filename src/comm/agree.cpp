#include "comm/agree.hpp"

#include "base/say.hpp"

namespace quadrille {
namespace {

// What a rank has to say: its exit code as a letter, then its message. Empty: all is well.
std::string verdict(const Collectives& ranks, const std::function<void()>& work) {
    const auto said = [](Exit exit, const std::string& message) { return std::string(1, static_cast<char>(exit)) + message; };
    try {
        work();
    } catch (const Error& e) {
        return said(e.exit(), e.what());
    } catch (const std::exception& e) {
        const Failure failure = failure_of(e);
        if (failure.exit != Exit::no_memory) throw;
        return said(failure.exit, fmt::format("rank {}: {}", ranks.rank(), failure.message));
    }
    return {};
}

void throw_shared(const std::string& verdict) {
    if (!verdict.empty()) throw SharedError(static_cast<Exit>(static_cast<unsigned char>(verdict[0])), verdict.substr(1));
}

}  // namespace

void together(const Collectives& ranks, const std::function<void()>& work) {
    const std::string mine = verdict(ranks, work);
    if (ranks.all(mine.empty())) return;
    std::string first;
    for (const std::string& v : ranks.gather(mine))
        if (first.empty()) first = v;
    throw_shared(ranks.broadcast(first));
}

std::string on_first_rank(const Collectives& ranks, const std::function<std::string()>& work) {
    std::string text, failure;
    if (ranks.rank() == 0) failure = verdict(ranks, [&] { text = work(); });
    throw_shared(ranks.broadcast(failure));
    return ranks.broadcast(text);
}

void end_alone(const World& world, const std::exception& e) {
    Exit exit = Exit::no_memory;
    try {
        const Failure failure = failure_of(e);
        exit = failure.exit;
        if (world.speaks_first()) say(fmt::format("rank {}: {}", world.rank(), failure.message));
    } catch (...) {  // no memory for the sentence
    }
    world.abort(exit);
}

}  // namespace quadrille
