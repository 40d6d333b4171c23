// A safetensors file: what is written is read back, and what is not whole is refused with the reason.
#include "base/error.hpp"
#include "exchange/model_json.hpp"
#include "exchange/safetensors.hpp"
#include "exchange/tensor_folder.hpp"
#include "unit/temporary_directory.hpp"

#include <doctest.h>
#include <sys/stat.h>

#include <bit>
#include <fstream>
#include <limits>

using namespace quadrille;

namespace fs = std::filesystem;

namespace {

// A file of this header and so many bytes of data.
fs::path file_of(const fs::path& file, const std::string& header, std::size_t data, std::uint64_t length = 0) {
    if (length == 0) length = header.size();
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << header << std::string(data, '\1');
    return file;
}

std::string entry(const std::string& name, const std::string& shape, const std::string& offsets, const std::string& dtype = "F32") {
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

std::string refusal(const fs::path& file) {
    try {
        SafetensorsFile read(file);
    } catch (const Damaged& e) {
        return e.what();
    }
    return "";
}

void check_has(const std::string& text, const std::string& part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
}

SafeTensor named(const std::string& name, std::vector<std::int64_t> shape) {
    SafeTensor t;
    t.name = name;
    t.shape = std::move(shape);
    return t;
}

}  // namespace

TEST_CASE("what is written is read back, in each dtype, whole and in part") {
    const TemporaryDirectory directory;
    const std::vector<float> a = {1, -2, 0.5f, 3, 1024, -0.25f}, b = {7};
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        const fs::path file = directory.path() / safetensors_name(dtype);
        SafetensorsWriter writer(file, {named("z", {2, 3}), named("a", {1}), named("none", {0, 4})}, dtype);
        writer.write_next(a);
        writer.write_next(b);
        writer.write_next({});
        writer.finish();
        const SafetensorsFile read(file);
        REQUIRE(read.tensors().size() == 3);
        CHECK(fs::file_size(file) % 8 == static_cast<std::uintmax_t>(7 * bytes_of(dtype)) % 8);
        for (const SafeTensor& t : read.tensors()) {
            if (t.name != "z") continue;
            CHECK(t.shape == std::vector<std::int64_t>{2, 3});
            std::vector<float> all(6), some(2);
            read.read(t, 0, all);
            read.read(t, 3, some);
            CHECK(all == a);
            CHECK(some == std::vector<float>{3, 1024});
        }
    }
}

TEST_CASE("a file that is not whole is refused with the reason") {
    const TemporaryDirectory directory;
    const fs::path file = directory.path() / "x.safetensors";
    const auto said = [&](const std::string& header, std::size_t data, std::uint64_t length = 0) {
        return refusal(file_of(file, header, data, length));
    };
    const std::string a = entry("a", "[2]", "[0,8]"), b = entry("b", "[1]", "[8,12]");
    CHECK(said("{" + a + "," + b + "}", 12).empty());
    check_has(said("{" + a + "," + b + "}", 11), "truncated");
    check_has(said("{" + a + "," + b + "}", 13), "13 bytes of data, but its tensors take 12");
    check_has(said("{" + a + "}", 8, 1u << 20), "truncated");
    check_has(said("{" + a + "}", 8, ~std::uint64_t{0}), "allowed: up to 100000000");
    check_has(said("{" + a, 8), "is no JSON");
    check_has(said("[]", 0), "no object");
    check_has(said("{" + a + "," + a + "}", 8), "key 'a' twice");
    check_has(said("{" + a + "," + entry("b", "[2]", "[4,12]") + "}", 12), "overlap");
    check_has(said("{" + a + "," + entry("b", "[1]", "[12,16]") + "}", 16), "gap");
    check_has(said("{" + entry("a", "[3]", "[0,8]") + "}", 8), "has 8 bytes, but its shape [3] of F32 takes 12");
    check_has(said("{" + entry("a", "[-1]", "[0,8]") + "}", 8), "allowed: counts");
    check_has(said("{" + entry("a", "[2.0]", "[0,8]") + "}", 8), "allowed: counts");
    check_has(said("{" + entry("a", "[2]", "[8,0]") + "}", 8), "allowed: begin and end");
    check_has(said("{" + entry("a", "[4294967296,4294967296]", "[0,8]") + "}", 8), "more than can be counted");
    check_has(said("{" + entry("a", "[2]", "[0,8]", "F33") + "}", 8), "F33");
    check_has(said("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8), "no data_offsets");
    check_has(said("{\"a\":" + std::string(1000, '['), 0), "nested deeper than 64");
    std::ofstream(file, std::ios::binary) << "abc";
    check_has(refusal(file), "has 3 bytes");
    check_has(refusal(directory.path() / "missing"), "is missing");
}

TEST_CASE("what is no file is refused, not waited for") {
    const TemporaryDirectory directory;
    const fs::path pipe = directory.path() / "pipe";
    REQUIRE(mkfifo(pipe.c_str(), 0666) == 0);
    for (const fs::path& what : {pipe, directory.path(), fs::path("/dev/zero")}) {
        CHECK(refusal(what) == what.string() + ": is no file");
        CHECK_THROWS_AS(read_model_json(what), Damaged);
    }
}

TEST_CASE("a tensor of a type that is not read is refused when it is, and others beside it are read") {
    const TemporaryDirectory directory;
    const std::string a = entry("a", "[1]", "[0,8]", "F64"), b = entry("b", "[2]", "[8,12]", "BF16");
    const SafetensorsFile read(file_of(directory.path() / "x", "{" + a + "," + b + "}", 12));
    std::vector<float> values(2);
    read.read(read.tensors()[1], 0, values);
    CHECK(values == std::vector<float>(2, std::bit_cast<float>(0x01010000u)));
    try {
        read.read(read.tensors()[0], 0, std::span(values).first(1));
        FAIL("was read");
    } catch (const Error& e) {
        CHECK(e.exit() == Exit::refused);
        check_has(e.what(), "tensor 'a' is F64, allowed: F32, F16 and BF16");
    }
}

TEST_CASE("a number that a narrower type would make an infinity of is refused; an infinity is not") {
    const TemporaryDirectory directory;
    constexpr float infinity = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();
    int number = 0;
    const auto said = [&](DType dtype, float value) -> std::string {
        SafetensorsWriter writer(directory.path() / std::to_string(number++), {named("big", {2})}, dtype);
        try {
            writer.write_next(std::vector<float>{1, value});
        } catch (const Error& e) {
            CHECK(e.exit() == Exit::refused);
            return e.what();
        }
        return "";
    };
    check_has(said(DType::f16, -65520), "tensor 'big' has the value -65520, which is beyond F16");
    check_has(said(DType::bf16, most), "which is beyond BF16");
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        CHECK(said(dtype, -infinity).empty());
        CHECK(said(dtype, 65504).empty());
    }
    CHECK(said(DType::f32, most).empty());
}

TEST_CASE("shards are one set: each tensor in one file, and as the index says") {
    const TemporaryDirectory directory;
    const fs::path &folder = directory.path(), index = folder / index_name;
    file_of(folder / "1.safetensors", "{" + entry("a", "[2]", "[0,8]") + "}", 8);
    file_of(folder / "2.safetensors", "{" + entry("b", "[1]", "[0,4]") + "}", 4);
    const auto said = [&](const std::string& map) -> std::string {
        std::ofstream(index) << "{\"metadata\":{},\"weight_map\":" << map << "}";
        try {
            const TensorFolder tensors(folder);
            CHECK(tensors.places().size() == 2);
        } catch (const Damaged& e) {
            return e.what();
        }
        return "";
    };
    CHECK(said(R"({"a":"1.safetensors","b":"2.safetensors"})").empty());
    check_has(said(R"({"a":"1.safetensors","b":"1.safetensors"})"), "no tensor 'b'");
    check_has(said(R"({"a":"1.safetensors","c":"2.safetensors"})"), "no tensor 'c'");
    check_has(said(R"({"a":"1.safetensors","b":"3.safetensors"})"), "is missing");
    check_has(said(R"({"a":"1.safetensors","b":"../2.safetensors"})"), "a file of this folder");
    check_has(said("[]"), "weight_map");
    file_of(folder / "2.safetensors", "{" + entry("a", "[1]", "[0,4]") + "}", 4);
    check_has(said(R"({"a":"1.safetensors","b":"2.safetensors"})"), "which");
}
