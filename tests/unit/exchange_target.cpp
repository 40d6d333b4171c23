// What export and import may put in the place of what stands there, and what they remove of dead ones.
#include "base/error.hpp"
#include "base/host_name.hpp"
#include "checkpoint/steps.hpp"
#include "exchange/target.hpp"
#include "unit/temporary_directory.hpp"

#include <doctest.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <fstream>
#include <iterator>

using namespace quadrille;

namespace fs = std::filesystem;

namespace {

bool exchanges = true;  // whether the system can exchange two names
fs::path unnamed;       // what cannot be renamed

}  // namespace

// Before the C library's own.
extern "C" int rename(const char* from, const char* to) noexcept {
    if (!unnamed.empty() && unnamed == from) return errno = EIO, -1;
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}
extern "C" long syscall(long number, ...) noexcept {
    va_list given;
    va_start(given, number);
    long a[6];
    for (long& each : a) each = va_arg(given, long);
    va_end(given);
    if (number == SYS_renameat2 && !exchanges) return errno = ENOSYS, -1;
    static auto* const system = reinterpret_cast<long (*)(long, ...)>(::dlsym(RTLD_NEXT, "syscall"));
    return system(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

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

TEST_CASE("where two names cannot change hands at once, a new one that fails to get its name leaves the former one under it") {
    const TemporaryDirectory scratch;
    const fs::path out = scratch.path() / "out";
    fs::create_directory(out);
    std::ofstream(out / "former") << "x";
    const auto names = [&] { return std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()); };
    exchanges = false;
    {
        PartialFolder made(out);
        std::ofstream(made.path() / "new") << "x";
        unnamed = made.path();
        CHECK_THROWS_AS(made.keep(), Error);
        unnamed.clear();
        CHECK(fs::exists(out / "former"));
    }
    CHECK(names() == 1);
    {
        PartialFolder made(out);
        std::ofstream(made.path() / "new") << "x";
        made.keep();
    }
    exchanges = true;
    CHECK((fs::exists(out / "new") && !fs::exists(out / "former")));
    CHECK(names() == 1);
}

TEST_CASE("a former one that a dead process has put aside gets its name back, unless the new one has it") {
    const TemporaryDirectory scratch;
    const fs::path out = scratch.path() / "out", aside = scratch.path() / ("out.former-" + host_name() + "-999999999-0");
    fs::create_directory(aside);
    std::ofstream(aside / "former") << "x";
    check_has(remove_leftovers_of(out).at(0), "put back");
    CHECK((fs::exists(out / "former") && !fs::exists(aside)));
    fs::create_directory(aside);
    check_has(remove_leftovers_of(out).at(0), "removed");
    CHECK((fs::exists(out / "former") && !fs::exists(aside)));
}
