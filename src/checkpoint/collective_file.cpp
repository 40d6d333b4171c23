#include "checkpoint/collective_file.hpp"

#include "checkpoint/first_failure.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace quadrille {
namespace {

// Bytes at places, as MPI describes them; none: no bytes.
class Places {
  public:
    Places() = default;
    ~Places() {
        if (made_) MPI_Type_free(&type_);
    }
    Places(const Places&) = delete;
    Places& operator=(const Places&) = delete;

    void set(const std::vector<int>& bytes, const std::vector<MPI_Aint>& places) {
        if (bytes.empty()) return;
        mpi_check(MPI_Type_create_hindexed(static_cast<int>(bytes.size()), bytes.data(), places.data(), MPI_BYTE, &type_));
        made_ = true;
        mpi_check(MPI_Type_commit(&type_));
    }
    MPI_Datatype type() const { return type_; }
    int count() const { return made_ ? 1 : 0; }

  private:
    MPI_Datatype type_ = MPI_BYTE;
    bool made_ = false;
};

constexpr std::int64_t most_bytes = std::int64_t{1} << 30;  // of a call

void set_file(Places& places, const std::vector<FileRun>& runs) {
    std::vector<int> bytes;
    std::vector<MPI_Aint> at;
    std::int64_t sum = 0, end = 0;
    for (const FileRun& r : runs) {
        require(r.bytes > 0 && r.offset >= end, "checkpoint: the runs of a call must ascend");
        end = r.offset + r.bytes;
        require((sum += r.bytes) <= most_bytes, "checkpoint: a call moves 1 GiB at most");
        bytes.push_back(static_cast<int>(r.bytes));
        at.push_back(r.offset - runs.front().offset);
    }
    places.set(bytes, at);
}

// Relative to the lowest address, which it returns.
void* set_memory(Places& places, const std::vector<MemoryRun>& runs) {
    std::vector<int> bytes;
    std::vector<MPI_Aint> at;
    const void* lowest = runs.empty() ? nullptr : runs.front().at;
    for (const MemoryRun& r : runs) lowest = std::min(lowest, r.at, std::less<>());
    for (const MemoryRun& r : runs) {
        bytes.push_back(static_cast<int>(r.bytes));
        at.push_back(static_cast<const std::byte*>(r.at) - static_cast<const std::byte*>(lowest));
    }
    places.set(bytes, at);
    return const_cast<void*>(lowest);  // MPI's one type for what it reads and what it writes
}

int open_file(const Collectives& ranks, const std::filesystem::path& path, PlainFile::Open how, const Hints& hints, MPI_File* file) {
    const auto told = ranks.waits();
    MPI_Info info = MPI_INFO_NULL;
    mpi_check(MPI_Info_create(&info));
    for (const auto& [key, value] : hints) MPI_Info_set(info, key.c_str(), value.c_str());  // one that MPI does not take is no hint
    const int rc = MPI_File_open(ranks.comm(), path.c_str(), how == PlainFile::Open::read ? MPI_MODE_RDONLY : MPI_MODE_RDWR, info, file);
    MPI_Info_free(&info);
    return rc;
}

int write_all(MPI_File file, MPI_Offset at, void* from, int count, MPI_Datatype type, MPI_Status* status) {
    return MPI_File_write_at_all(file, at, from, count, type, status);
}

}  // namespace

CollectiveFile::CollectiveFile(const Collectives& ranks, const std::filesystem::path& path, PlainFile::Open how, const Hints& hints)
    : ranks_(ranks), path_(path) {
    // First by the system's own call, which has a reason to give, and waits for nobody.
    together(ranks, [&] { plain_.emplace(path, how); });
    const int rc = open_file(ranks, path, how, hints, &file_);
    const bool mine = rc == MPI_SUCCESS;
    try {
        together(ranks, [&] { check(rc, "open"); });
    } catch (const SharedError& e) {
        if (ranks.max(mine) == 0) throw;
        throw Error(e.exit(), e.what());
    }
}

CollectiveFile::~CollectiveFile() {
    if (file_ != MPI_FILE_NULL) MPI_File_close(&file_);
}

void CollectiveFile::write(const std::vector<FileRun>& runs, const std::vector<MemoryRun>& memory) { move(runs, memory, write_all, "write"); }

// Each rank for itself, though the view is set by all: copies of a piece are read by several ranks, and what Open MPI 4.1's collective read gives
// them of rows that they have in part is now and then another's.
void CollectiveFile::read(const std::vector<FileRun>& runs, const std::vector<MemoryRun>& memory) { move(runs, memory, MPI_File_read_at, "read"); }

void CollectiveFile::move(const std::vector<FileRun>& runs, const std::vector<MemoryRun>& memory, Call call, const char* doing) {
    const auto told = ranks_.waits();
    FirstFailure failure;
    Places in_file, in_memory, nothing;
    void* base = nullptr;
    failure.attempt([&] {
        set_file(in_file, runs);
        base = set_memory(in_memory, memory);
    });
    const bool moves = !failure.any() && in_file.count() > 0;
    const MPI_Offset first = moves ? runs.front().offset : 0;
    failure.attempt([&] {
        check(MPI_File_set_view(file_, first, MPI_BYTE, moves ? in_file.type() : MPI_BYTE, "native", MPI_INFO_NULL), doing);
    });
    const Places& from = moves && !failure.any() ? in_memory : nothing;
    MPI_Status status;
    failure.attempt([&] { check(call(file_, 0, base, from.count(), from.type(), &status), doing); });
    failure.rethrow();
}

void CollectiveFile::close() {
    const auto told = ranks_.waits();
    MPI_File open = std::exchange(file_, MPI_FILE_NULL);  // one that fails leaves its handle as it was, and is not to be closed again
    check(MPI_File_close(&open), "close");
}

void CollectiveFile::fail(const char* doing, int reason) const {
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    if (MPI_Error_string(reason, text.data(), &length) != MPI_SUCCESS) length = 0;
    throw Error(Exit::io_failed,
                fmt::format("{}: MPI-IO cannot {}: {}", path_.string(), doing, std::string(text.data(), static_cast<std::size_t>(length))));
}

}  // namespace quadrille
