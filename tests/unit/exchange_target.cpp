// What export and import may put in the place of what stands there, and what they remove of dead ones.
#include "base/error.hpp"
#include "base/host_name.hpp"
#include "exchange/target.hpp"
#include "unit/temporary_directory.hpp"

#include <doctest.h>
#include <unistd.h>

#include <fstream>

using namespace quadrille;

namespace fs = std::filesystem;

namespace {

template <class Call>
std::string refusal(Call call) {
    try {
        call();
    } catch (const Error& e) {
        CHECK(e.exit() == Exit::refused);
        return e.what();
    }
    return "";
}

void check_has(const std::string& text, const std::string& part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("an export replaces a former export where it is told to, and nothing else") {
    const TemporaryDirectory scratch;
    const fs::path folder = scratch.path() / "out";
    const auto said = [&](bool replace) { return refusal([&] { require_export_target(folder, replace); }); };
    CHECK(said(false).empty());
    fs::create_directory(folder);
    CHECK(said(false).empty());
    for (const char* name : {"config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json"}) std::ofstream(folder / name) << "x";
    check_has(said(false), "is not empty, allowed: a new folder, or --replace");
    CHECK(said(true).empty());
    std::ofstream(folder / "tokenizer.json") << "x";
    check_has(said(true), "holds tokenizer.json, which no export has made");
    fs::remove_all(folder);
    std::ofstream(folder) << "";
    check_has(said(true), "is no folder");
}

TEST_CASE("the working directory is not replaced under whoever stands in it") {
    const TemporaryDirectory scratch;
    const fs::path before = fs::current_path();
    fs::current_path(scratch.path());
    const std::string said = refusal([] { require_export_target(plain_name("."), false); });
    fs::current_path(before);
    check_has(said, "is the working directory");
}

TEST_CASE("an import replaces step 0 where it is told to, and no step of a run") {
    const TemporaryDirectory scratch;
    const fs::path directory = scratch.path() / "steps";
    const auto said = [&](bool replace) { return refusal([&] { require_import_target(directory, replace); }); };
    CHECK(said(false).empty());
    fs::create_directories(directory / "step-00000000");
    check_has(said(false), "holds a checkpoint, step-00000000, allowed: a directory without, or --replace");
    CHECK(said(true).empty());
    fs::create_directory(directory / "step-00000003");
    check_has(said(true), "holds the checkpoint step-00000003 of a run");
}

TEST_CASE("a link to a folder is the folder, and a slash at the end is none") {
    const TemporaryDirectory scratch;
    const fs::path real = fs::canonical(scratch.path()) / "real";
    fs::create_directory(real);
    fs::create_directory_symlink(real, scratch.path() / "link");
    CHECK(plain_name(scratch.path() / "link") == real);
    CHECK(plain_name(real / "") == real);
    CHECK(plain_name(real / "new") == real / "new");
}

TEST_CASE("what dead ones have left of a name is removed, and nothing of another name or another host") {
    const TemporaryDirectory scratch;
    const fs::path &at = scratch.path(), out = at / "out";
    const std::string dead = host_name() + "-999999999-0";
    const std::vector<std::string> stay = {"out2.partial-" + dead, "out.partial-elsewhere-12-0", "out.partial-"};
    fs::create_directory(at / ("out.partial-" + dead));
    for (const std::string& name : stay) fs::create_directory(at / name);
    const std::vector<std::string> notes = remove_leftovers_of(out);
    CHECK(notes.size() == 2);
    CHECK(!fs::exists(at / ("out.partial-" + dead)));
    for (const std::string& name : stay) CHECK(fs::exists(at / name));
}
