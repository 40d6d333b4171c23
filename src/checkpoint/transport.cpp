#include "checkpoint/transport.hpp"

namespace quadrille {
namespace {

using namespace hdf5;

Transport transport_of(const Collectives& ranks, const Hints& hints) {
    if (ranks.size() > 1 && has_mpi_io()) return mpi_io(ranks, hints);
    return {false, {H5Pcreate(H5P_FILE_ACCESS), H5Pclose}, {H5Pcreate(H5P_DATASET_XFER), H5Pclose}};
}

void open_and_work(const Collectives& ranks, const std::string& name, Use use, const Hints& hints, const std::function<void(const OpenFile&)>& work) {
    std::optional<QuietHdf5> quiet(std::in_place);
    const Transport by = transport_of(ranks, hints);
    Hdf5Id file(H5Fopen(name.c_str(), use == Use::write ? H5F_ACC_RDWR : H5F_ACC_RDONLY, by.access), H5Fclose);
    const bool opened = file >= 0;
    if (by.collective && !ranks.all(opened)) {  // closing is collective too: left open, since the job ends
        const bool mine = !file.leave();
        if (!mine) throw Error(Exit::io_failed, fmt::format("{}: cannot be opened by another rank", name));
    }
    if (!opened) fail(name, "cannot be opened");
    quiet.reset();  // whoever works locks for each call alone
    work({file, by.transfer, name});
    quiet.emplace();
    check(file.close(), name, "cannot be closed");
}

}  // namespace

void use_file(const Collectives& ranks, const std::filesystem::path& file, Use use, const Hints& hints,
              const std::function<void(const OpenFile&)>& work) {
    const bool together = use == Use::read || ranks.size() == 1 || has_mpi_io();
    if (together) return open_and_work(ranks, file.string(), use, hints, work);
    std::exception_ptr failure;
    for (int turn = 0; turn < ranks.size(); ++turn) {
        try {
            if (turn == ranks.rank()) open_and_work(ranks, file.string(), use, hints, work);
        } catch (const Error&) {  // the others wait for the end of its turn
            failure = std::current_exception();
        }
        ranks.barrier();
    }
    if (failure) std::rethrow_exception(failure);
}

}  // namespace quadrille
