// The file of the nvme tier, on the disk that holds temporary files and on a tmpfs: with both carriers, directly and through the page cache.
#include <doctest.h>

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <random>

#include "unit/storage_fixture.hpp"

namespace quadrille {
namespace {

using namespace storage_test;

struct Variant {
    Carrier carrier;
    Access access;
};
constexpr Variant variants[] = {{Carrier::io_uring, Access::direct},
                                {Carrier::io_uring, Access::buffered},
                                {Carrier::threads, Access::direct},
                                {Carrier::threads, Access::buffered}};

NvmeOptions options(const TemporaryDirectory& directory, const Variant& v, std::int64_t bytes, std::int64_t block_size, int queue_depth) {
    NvmeOptions o;
    o.directory = directory.path();
    o.bytes = bytes;
    o.block_size = block_size;
    o.queue_depth = queue_depth;
    o.access = v.access;
    o.carrier = v.carrier;
    return o;
}

TEST_CASE("tensors of any size, in memory anywhere, come back as they were") {
    const TemporaryDirectory directory;
    constexpr std::int64_t most = ((QUADRILLE_SAMPLED ? 1 : 5) << 20) + 12345;
    const std::vector<std::int64_t> sizes = {1, 4, 511, 512, 513, 4095, 4096, 4097, 8 * 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, most};
    for (const Variant& v : variants)
        for (const auto& [block, depth] : {std::pair{512, 64}, {5000, 1}, {64 << 10, 64}, {4 << 20, 2}}) {
            const int block_size = block;  // clang 14 captures no binding
            CAPTURE(block_size);
            NvmeFile file(options(directory, v, 16 << 20, block, depth));
            std::vector<Bytes> given, got;
            std::int64_t at = 0;
            for (std::size_t i = 0; i < sizes.size(); ++i) {
                const auto shift = std::vector<std::int64_t>{0, 1, 64, 512}[i % 4];
                given.emplace_back(100 * i + 1, sizes[i], shift);
                got.emplace_back(7, sizes[i], i % 3 == 0 ? 0 : shift + 8);
                file.write(at, given[i].data(), sizes[i]);
                at += nvme_bytes(sizes[i]);
            }
            REQUIRE(at <= file.bytes());
            while (file.poll()) {}
            at = 0;
            TransferTicket last = 0;
            for (std::size_t i = 0; i < sizes.size(); ++i) {
                last = file.read(at, got[i].data(), sizes[i]);
                at += nvme_bytes(sizes[i]);
            }
            file.wait(last);
            while (file.poll()) {}
            for (std::size_t i = 0; i < sizes.size(); ++i) {
                CAPTURE(sizes[i]);
                CHECK(got[i].equals(given[i]));
                CHECK(got[i].strips_are_whole());
                CHECK(given[i].strips_are_whole());
            }
        }
}

// A file in memory beside the real one. What the bytes between a region's end and the next unit hold is nobody's business.
struct Model {
    explicit Model(std::int64_t bytes) : content(static_cast<std::size_t>(bytes)), known(static_cast<std::size_t>(bytes)) {}
    void write(std::int64_t offset, const Bytes& from, std::int64_t count) {
        std::memcpy(content.data() + offset, from.data(), static_cast<std::size_t>(count));
        std::fill_n(known.begin() + offset, count, char{1});
        std::fill_n(known.begin() + offset + count, nvme_bytes(count) - count, char{0});
    }
    bool agrees(std::int64_t offset, const Bytes& with, std::int64_t count) const {
        for (std::int64_t i = 0; i < count; ++i) {
            const auto at = static_cast<std::size_t>(offset + i);
            if (known[at] && content[at] != with.data()[i]) return false;
        }
        return true;
    }
    std::vector<std::byte> content;
    std::vector<char> known;
};

struct Pending {
    std::int64_t offset, count;
    bool reads;
    Bytes memory;
};

// `requests` at random places, of random lengths and alignments; one waits only for those under way that touch the same units of the file.
int wrong_reads(NvmeFile& file, unsigned seed, int requests) {
    std::mt19937 random(seed);
    const auto draw = [&](std::int64_t below) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below)); };
    Model model(file.bytes());
    std::map<TransferTicket, Pending> pending;
    int wrong = 0;
    const auto settle = [&](std::map<TransferTicket, Pending>::iterator p) {
        file.wait(p->first);
        if (p->second.reads && !model.agrees(p->second.offset, p->second.memory, p->second.count)) ++wrong;
        if (!p->second.memory.strips_are_whole()) ++wrong;
        return pending.erase(p);
    };
    for (int i = 0; i < requests; ++i) {
        const std::int64_t offset = draw(file.bytes() / nvme_alignment) * nvme_alignment;
        const std::int64_t count = std::min(1 + draw(i % 10 == 0 ? 200000 : 20000), file.bytes() - offset);
        const bool reads = draw(2) == 0;
        for (auto p = pending.begin(); p != pending.end();) {
            const bool meets = p->second.offset < offset + nvme_bytes(count) && offset < p->second.offset + nvme_bytes(p->second.count);
            p = meets && !(reads && p->second.reads) ? settle(p) : std::next(p);
        }
        Bytes memory(random(), count, draw(3) == 0 ? 0 : draw(700));
        if (!reads) model.write(offset, memory, count);
        const TransferTicket ticket = reads ? file.read(offset, memory.data(), count) : file.write(offset, memory.data(), count);
        pending.emplace(ticket, Pending{offset, count, reads, std::move(memory)});
        file.poll();
    }
    while (!pending.empty()) settle(pending.begin());
    return wrong;
}

TEST_CASE("a thousand random requests against a model in memory") {
    const TemporaryDirectory directory;
    unsigned seed = 20261129;
    for (const Variant& v : variants)
        for (const auto& [block, depth] : {std::pair{512, 1}, {512, 64}, {16 << 10, 5}, {4 << 20, 64}}) {
            MESSAGE("seed ", ++seed);
            NvmeFile file(options(directory, v, 4 << 20, block, depth));
            CHECK((file.carrier() == v.carrier || says(file.notes().back(), "io_uring") || says(file.notes().back(), "liburing")));
            CHECK(wrong_reads(file, seed, 1000) == 0);
        }
}

TEST_CASE("memory registered with the kernel, in part, in whole and not at all") {
    const TemporaryDirectory directory;
    const Bytes given(1, 3 << 20), got(2, 3 << 20);
    for (const std::size_t registered : {std::size_t{0}, std::size_t{1} << 20, std::size_t{3} << 20}) {
        NvmeOptions o = options(directory, variants[0], 3 << 20, 256 << 10, 8);
        o.memory = {given.span().first(registered), got.span().first(registered)};
        NvmeFile file(o);
        file.wait(file.write(0, given.data(), 3 << 20));
        std::memset(got.data(), 0, 3 << 20);
        file.wait(file.read(0, got.data(), 3 << 20));
        CHECK(got.equals(given));
    }
}

TEST_CASE("a tmpfs serves too") {
    if (!std::filesystem::is_directory("/dev/shm")) return skip("no /dev/shm");
    for (const Variant& v : variants) {
        NvmeOptions o;
        o.directory = "/dev/shm";
        o.bytes = 1 << 20;
        o.access = v.access;
        o.carrier = v.carrier;
        CHECK(says(round_trip(o), "whole"));
    }
}

TEST_CASE("the memory that a file takes for itself is known without one") {
    const auto staging = [](std::int64_t block_size, int queue_depth) {
        NvmeOptions options;
        options.block_size = block_size;
        options.queue_depth = queue_depth;
        return NvmeFile::staging_bytes(options);
    };
    CHECK(staging(1 << 20, 32) == 32 << 20);
    CHECK(staging(512, 64) == 64 * 4096);
    CHECK(staging(5000, 1) == 8192);
    CHECK_THROWS_AS(staging(511, 1), std::logic_error);
    CHECK_THROWS_AS(staging(512, 0), std::logic_error);
    CHECK(nvme_bytes(0) == 0);
    CHECK(nvme_bytes(1) == 4096);
}

TEST_CASE("memory given to a file is as large as it needs, at a multiple of nvme_alignment") {
    const TemporaryDirectory directory;
    NvmeOptions given;
    given.directory = directory.path();
    given.bytes = 4096;
    given.queue_depth = 2;
    const std::int64_t bytes = NvmeFile::staging_bytes(given);
    const Bytes even(1, bytes), shifted(1, bytes, 512);
    given.staging = even.span();
    CHECK(says(round_trip(given, 100), "whole"));
    given.staging = even.span().first(static_cast<std::size_t>(bytes) - 4096);
    CHECK_THROWS_AS(NvmeFile{given}, std::logic_error);
    given.staging = shifted.span();
    CHECK_THROWS_AS(NvmeFile{given}, std::logic_error);
}

TEST_CASE("an empty file is possible and holds nothing") {
    const TemporaryDirectory directory;
    for (const Variant& v : variants) {
        NvmeFile file(options(directory, v, 0, 512, 4));
        file.wait(file.read(0, nullptr, 0));
        CHECK_THROWS_AS(file.write(0, Bytes(1, 1).data(), 1), std::logic_error);
    }
}

TEST_CASE("a file that is cut short under the run is a short read that names it") {
    const TemporaryDirectory directory;
    for (const Variant& v : variants) {
        NvmeFile file(options(directory, v, 1 << 20, 64 << 10, 4));
        REQUIRE(ftruncate(file.descriptor(), 100 << 10) == 0);
        const Bytes memory(1, 1 << 20);
        std::string said;
        try {
            file.wait(file.read(0, memory.data(), 1 << 20));
        } catch (const Error& e) {
            CHECK(e.exit() == Exit::io_failed);
            said = e.what();
        }
        CHECK(says(said, file.name()));
        CHECK(says(said, "short read"));
        CHECK_THROWS_AS(file.poll(), Error);
    }
}

TEST_CASE("transfers under way when the file goes are waited for") {
    const TemporaryDirectory directory;
    for (const Variant& v : variants) {
        const Bytes memory(1, 8 << 20);
        NvmeFile file(options(directory, v, 8 << 20, 64 << 10, 32));
        file.write(0, memory.data(), 8 << 20);
    }
}

}  // namespace
}  // namespace quadrille
