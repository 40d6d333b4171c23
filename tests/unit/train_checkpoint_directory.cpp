// checkpoint.directory is held by one run, which finds there what it saw before.
#include "train/checkpoint_directory.hpp"

#include "base/error.hpp"
#include "unit/temporary_directory.hpp"

#include <doctest.h>

#include <optional>

using namespace quadrille;
namespace fs = std::filesystem;

namespace {

std::string refusal(const Config& c, const Start& start) {
    try {
        CheckpointDirectory(c, start);
    } catch (const Error& e) {
        CHECK(e.exit() == Exit::refused);
        return e.what();
    }
    return "";
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

struct Place {
    TemporaryDirectory directory;
    Config config;
    Place() {
        config.output.directory = (directory.path() / "run").string();
        config.checkpoint.directory = (directory.path() / "saves/of/it").string();
        fs::create_directory(config.output.directory);
    }
};

}  // namespace

TEST_CASE("it is made with its parents, and goes again where nothing was saved") {
    const Place place;
    const fs::path saves = place.config.checkpoint.directory;
    {
        const CheckpointDirectory held(place.config, {});
        CHECK(fs::is_directory(saves));
    }
    CHECK(!fs::exists(saves));
    {
        const CheckpointDirectory held(place.config, {});
        fs::create_directory(saves / "step-00000001");
    }
    CHECK(fs::exists(saves / "step-00000001"));
}

TEST_CASE("two runs with output directories of their own cannot have the same one; one may have both in one folder") {
    Place place;
    std::optional<CheckpointDirectory> held;
    held.emplace(place.config, Start{});
    const std::string why = refusal(place.config, {});
    CHECK(has(why, "checkpoint.directory: "));
    CHECK(has(why, "is in use: another run is writing into it"));
    held.reset();
    CHECK(refusal(place.config, {}).empty());
    place.config.checkpoint.directory = place.config.output.directory;
    const OutputLock output(place.config.output.directory);
    CHECK(refusal(place.config, {}).empty());
}

TEST_CASE("what was saved there since the run looked is another run's") {
    const Place place;
    const fs::path saves = place.config.checkpoint.directory;
    fs::create_directories(saves / "step-00000100");
    Start start;
    start.seen = {saves / "step-00000100", saves / "step-00000090"};  // the older one has gone since
    CHECK(refusal(place.config, start).empty());
    fs::create_directories(saves / "step-00000110");
    const std::string why = refusal(place.config, start);
    CHECK(has(why, "has step-00000110 since this run looked there"));
}
