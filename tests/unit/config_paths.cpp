#include "config_fixture.hpp"

#include "config/paths.hpp"

using namespace quadrille;
using input::find_files;

namespace fs = std::filesystem;

namespace {

// The paths below a folder, for comparison.
std::vector<std::string> below(const fs::path& folder, const std::vector<std::string>& files) {
    std::vector<std::string> names;
    for (const std::string& file : files) {
        CHECK(fs::path(file).is_absolute());
        names.push_back(fs::path(file).lexically_relative(folder).string());
    }
    return names;
}
using Names = std::vector<std::string>;

}  // namespace

TEST_CASE_FIXTURE(ConfigFixture, "globs") {
    for (const char* name :
         {"b.txt", "a.txt", "B.txt", "c.md", "d/e.txt", "d/f/g.txt", "d/f/h.md", ".hidden.txt", ".git/x.txt", "we[i]rd.txt"})
        file(name, "x");
    fs::create_directory_symlink(folder, folder / "d" / "loop");
    fs::create_symlink(folder / "a.txt", folder / "link.txt");
    const auto names = [&](const std::string& pattern) { return below(folder, find_files(pattern, {folder}).files); };
    CHECK(names("*.txt") == Names{"B.txt", "a.txt", "b.txt", "link.txt", "we[i]rd.txt"});  // bytewise: capitals first
    CHECK(names("**/*.txt") == Names{"B.txt", "a.txt", "b.txt", "d/e.txt", "d/f/g.txt", "link.txt", "we[i]rd.txt"});
    CHECK(names("d/**/*.txt") == Names{"d/e.txt", "d/f/g.txt"});
    CHECK(names("d/**") == Names{"d/e.txt", "d/f/g.txt", "d/f/h.md"});
    CHECK(names("**/**/f/*") == Names{"d/f/g.txt", "d/f/h.md"});
    CHECK(names("?.[mt]*") == Names{"B.txt", "a.txt", "b.txt", "c.md"});
    CHECK(names(".*.txt") == Names{".hidden.txt"});
    CHECK(names("we[i]rd.txt") == Names{"we[i]rd.txt"});  // it exists as it is
    CHECK(names("d/../a.txt") == Names{"a.txt"});
    CHECK(names("./a.txt") == Names{"a.txt"});
    CHECK(names((folder / "d/e.txt").string()) == Names{"d/e.txt"});
    CHECK(names("*.none").empty());
    check_has(find_files("*.none", {folder}).problem, "which matches no file in " + folder.string());
    check_has(find_files("none.txt", {folder, "/other"}).problem, "but there is no such file in " + folder.string() + " or /other");
    check_has(find_files("d", {folder}).problem, "which is a folder, allowed: files; d/**/* names those inside");
    check_has(find_files("d//", {folder}).problem, "; d/**/* names those inside");
    check_has(find_files("a.txt/x", {folder}).problem, "no such file");
}

TEST_CASE_FIXTURE(ConfigFixture, "the input file's folder comes first, then the working directory") {
    file("one/a.txt", "x");
    file("two/a.txt", "x");
    file("two/b.txt", "x");
    CHECK(below(folder, find_files("a.txt", {folder / "one", folder / "two"}).files) == Names{"one/a.txt"});
    CHECK(below(folder, find_files("b.txt", {folder / "one", folder / "two"}).files) == Names{"two/b.txt"});
    CHECK(below(folder, find_files("*.txt", {folder / "one", folder / "two"}).files) == Names{"one/a.txt"});
}

TEST_CASE_FIXTURE(ConfigFixture, "data paths: training needs them, a plan does not") {
    file("data/x.txt", "x");
    file("data/y.txt", "y");
    const std::string text = "data: {train: [data/*.txt, data/x.txt, nothing.txt, \"data/*.md\"]}\n";
    const Config plan = load(text);
    CHECK(below(folder, plan.data.train) == Names{"data/x.txt", "data/y.txt", "data/x.txt", "nothing.txt", "data/*.md"});
    std::vector<std::string> warnings;
    load_config(file("in.yaml", text), {}, job, &warnings);
    CHECK(warnings.size() == 2);
    CHECK(refusal("model: {num_layers: 2}\n").empty());
    job.planning = false;
    const std::string missing = refusal(text);
    check_has(missing, "data.train: found 'nothing.txt', but there is no such file in ");
    check_has(missing, "data.train: found 'data/*.md', which matches no file in ");
    CHECK(lines(missing) == 2);
    CHECK(below(folder, load("data: {train: data/x.txt, valid: [data/y.txt]}\n").data.valid) == Names{"data/y.txt"});
    check_has(refusal("data: {train: [data]}\n"), "found 'data', which is a folder");
    check_has(refusal("data: {train: []}\n"), "data.train: found no path, allowed: at least one for format text");
    check_has(refusal("data: {train: }\n"), "data.train: found no path");
    check_has(refusal("data: {train: [\"$HOME/x\"]}\n"), "~ and $NAME are not expanded");
    check_has(refusal("data: {train: [[a]]}\n"), "data.train: found a list of 1");
    CHECK(load("data: {format: synthetic, train: [nothing]}\n").data.train.empty());
}

TEST_CASE_FIXTURE(ConfigFixture, "megatron: prefixes, with and without extension") {
    file("corpus_text_document.bin", "x");
    file("corpus_text_document.idx", "x");
    job.planning = false;
    for (const char* written : {"corpus_text_document", "corpus_text_document.bin", "corpus_text_document.idx", "*_document",
                                "corpus*", "*.bin", "*.idx"}) {
        INFO(written);
        const Config c = load(fmt::format("data: {{format: megatron, train: [\"{}\"]}}\n", written));
        CHECK(below(folder, c.data.train) == Names{"corpus_text_document"});
    }
    check_has(refusal("data: {format: megatron, train: [other]}\n"), "no such file");
}

TEST_CASE_FIXTURE(ConfigFixture, "the nvme tier's directory: a run needs it, a plan warns, and who offloads nothing there is not asked") {
    file("plain", "x");
    const auto text = [&](const std::string& place) {
        return "data: {format: synthetic}\noffload: {optimizer: nvme, nvme_path: " + (folder / place).string() + "}\n";
    };
    std::vector<std::string> warnings;
    load_config(file("in.yaml", text("missing")), {}, job, &warnings);
    REQUIRE(warnings.size() == 1);
    check_has(warnings[0], "offload.nvme_path: found '" + (folder / "missing").string() + "', but there is no such directory");
    job.planning = false;
    check_has(refusal(text("missing")),
              "in.yaml:2:39: offload.nvme_path: found 'missing', but there is no such directory, allowed: the directory of a local disk");
    check_has(refusal(text("plain")), "found 'plain', which is not a directory");
    CHECK(refusal(text("")).empty());
    CHECK(refusal("data: {format: synthetic}\noffload: {nvme_path: /missing}\n").empty());
}

TEST_CASE_FIXTURE(ConfigFixture, "the output directory: NAME, and nothing else is expanded") {
    CHECK(load("model: {num_layers: 2}\n").output.directory == "runs/in");
    CHECK(load("output: {directory: out/NAME/x}\n").output.directory == "out/in/x");
    CHECK(load("output: {directory: /abs/NAMES}\n").output.directory == "/abs/NAMES");
    check_has(refusal("output: {directory: ~/x}\n"), "found '~/x', allowed: a path as it is; ~ and $NAME are not expanded here");
    check_has(refusal("output: {directory: $SCRATCH/x}\n"), "not expanded here, but the shell does so in an override");
}
