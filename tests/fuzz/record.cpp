// The record of a run and its trace: damage is told, and what another program has written and sealed is summed up or refused.
//
// An input is a byte that says which file and how, and changes. Even: changes to the file's bytes; whatever differs from what was written is refused.
// Odd: changes through HDF5 (foreign_hdf5.hpp), sealed as the record is.
#include "fuzz/foreign_hdf5.hpp"

#include "record/record_writer.hpp"
#include "record/report.hpp"
#include "record/seal.hpp"
#include "record/trace.hpp"
#include "unit/record_sample.hpp"

using namespace quadrille;
using namespace quadrille::fuzz;

namespace {

struct Base {
    TemporaryDirectory directory;
    std::string record, trace;

    Base() {
        RecordWriter(directory.path()).write(sample_record());
        write_trace(directory.path(), {{"compute", "tp"}, {"F layers.0 matmul@0", "S head"},
                                       {{7, 0, {{0, 0, 0.5, 1}, {1, 1, 1, 2}}}, {7, 1, {{0, 0, 0.25, 1}}}}, {{0, 0, 0, 0.5, {5, 4, 3, 2, 1}}}});
        record = contents(directory.path() / "run.h5");
        trace = contents(directory.path() / "trace.h5");
    }
    std::filesystem::path file() const { return directory.path() / "changed.h5"; }
};

std::string damaged(std::string bytes, Bytes& changes) {
    for (int i = 0; i < 4 && !changes.empty(); ++i) {
        const std::size_t size = bytes.size();
        switch (changes.byte() % 3) {
            case 0:
                if (size > 0) bytes[changes.below(size)] = static_cast<char>(changes.byte());
                break;
            case 1: bytes.resize(changes.below(size + 1)); break;
            default: bytes.append(changes.below(100), static_cast<char>(changes.byte()));
        }
    }
    return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const Base base;
    Bytes input(data, size);
    const unsigned which = input.byte();
    const std::string& whole = which / 2 % 2 == 0 ? base.record : base.trace;
    if (which % 2 == 0) {
        const std::string bytes = damaged(whole, input);
        write(base.file(), bytes);
        expect(takes([&] { inspect_record(base.file()); }) == (bytes == whole), "what is not what was written is refused");
        return 0;
    }
    constexpr std::size_t seal_bytes = 16;
    write(base.file(), std::string_view(whole).substr(0, whole.size() - seal_bytes));
    edit_hdf5(base.file(), input);
    const std::string edited = contents(base.file());
    const auto* bytes = reinterpret_cast<const std::byte*>(edited.data());
    const std::vector<std::byte> anew = sealed({bytes, bytes + edited.size()});
    write(base.file(), {reinterpret_cast<const char*>(anew.data()), anew.size()});
    takes([&] { inspect_record(base.file()); });
    return 0;
}
