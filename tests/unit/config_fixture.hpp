// Loading an input file from text, in a folder of its own that goes away with the test.
#pragma once
#include "base/error.hpp"
#include "base/location.hpp"
#include "config/load.hpp"

#include <doctest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

struct ConfigFixture {
    std::filesystem::path folder;
    quadrille::Job job;  // a plan, the ranks unknown

    ConfigFixture() {
        std::string name = (std::filesystem::temp_directory_path() / "quadrille-config-XXXXXX").string();
        REQUIRE(mkdtemp(name.data()) != nullptr);
        folder = name;
    }
    ~ConfigFixture() { std::filesystem::remove_all(folder); }
    ConfigFixture(const ConfigFixture&) = delete;
    ConfigFixture& operator=(const ConfigFixture&) = delete;

    std::string file(const std::string& name, const std::string& text) const {
        const auto path = folder / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path, std::ios::binary) << text;
        return path.string();
    }

    quadrille::Config load(const std::string& text, const std::vector<std::string>& overrides = {}) const {
        return quadrille::load_config(file("in.yaml", text), overrides, job);
    }

    // The problems of a text, with the folder left out of them; empty if it loads.
    std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) const {
        return refusal_of(file("in.yaml", text), overrides);
    }
    std::string refusal_of(const std::string& path, const std::vector<std::string>& overrides = {}) const {
        try {
            quadrille::load_config(path, overrides, job);
        } catch (const quadrille::Error& e) {
            CHECK(e.exit() == quadrille::Exit::refused);
            std::string message = e.what();
            const std::string prefix = folder.string() + "/";
            for (std::size_t at; (at = message.find(prefix)) != std::string::npos;) message.erase(at, prefix.size());
            return message;
        }
        return "";
    }
};

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
inline std::size_t lines(const std::string& text) {
    std::size_t count = text.empty() ? 0 : 1;
    for (const char c : text) count += c == '\n';
    return count;
}

// Of this process: what hangs takes many, however busy the machine is.
inline double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Shows the whole text when a part is missing.
inline void check_has(const std::string& text, const std::string& part, quadrille::Location at = quadrille::Location::current()) {
    INFO("line " << at.line() << ": " << text);
    CHECK(has(text, part));
}
