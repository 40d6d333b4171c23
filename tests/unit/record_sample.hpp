// A small run record with a different number in every cell: shared by the record's tests.
#pragma once
#include "record/run_record.hpp"
#include "unit/temporary_directory.hpp"

namespace quadrille {

inline RunRecord sample_record(std::int64_t steps = 3) {
    RunRecord record;
    record.config_yaml =
        "model:\n  num_layers: 4\n  hidden_size: 60\ngrid:\n  dp: 1\n  tp: 2\n  pp: 1\n  sp: 1\ntrain:\n  steps: 3\n";
    record.command = "quadrille train inputs/quickstart.yaml train.steps=3";
    record.start_time = "2026-01-31T12:00:00Z";
    record.environment = {{"mpi", "Some MPI 4.1"}, {"device", "cpu"}, {"blas", "a library"}};
    record.choices = {{"grid.order", "tp-dp-sp-pp, since it is a sample"}};
    record.coordinates = {{0, 0, 0, 0}, {0, 1, 0, 0}};
    record.hosts = {"alpha", "beta"};
    record.wire_axes = {"tp", "dp+sp"};
    for (std::int64_t k = 1; k <= steps; ++k) {
        std::vector<double> seconds(2 * RunRecord::categories.size());
        for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i] = 0.001 * static_cast<double>(i + 1) + static_cast<double>(k);
        std::vector<double> moves(2 * record.move_cells());
        for (std::size_t i = 0; i < moves.size(); ++i) moves[i] = 0.01 * static_cast<double>(i + 1) + static_cast<double>(k);
        record.add_step({k, 5.5 - 0.25 * static_cast<double>(k), 1.5, 0.5, 1e-3, 1, 256, 0.5,
                         0xFFFFFFFFFFFFFFF0ull + static_cast<std::uint64_t>(k), 0.0625 * static_cast<double>(k)},
                        seconds, moves);
    }
    record.evaluations = {{2, 5.125, 0.25}};
    for (std::size_t i = 0; i < 2 * RunRecord::peak_cells; ++i)
        record.predicted_peak.push_back((std::int64_t{1} << 40) + static_cast<std::int64_t>(i));
    record.measured_peak = record.predicted_peak;
    record.reserved = {1 << 18, 1 << 17, 1 << 30, 1 << 19, 1 << 18, 0};
    record.huge_pages = {1 << 17, RunRecord::not_told, 0, 1 << 18, 1 << 17, 0};
    record.shared = {0, 1 << 18};
    record.process_peak = {1 << 20, 1 << 21};
    record.wire_predicted = {1, 2, 3, 4};
    record.wire_sent = {5, 6, 7, 8};
    record.wire_uncompressed = {17, 18, 19, 20};
    record.copies_predicted = {9, 10, 0, 11, 12, 0};
    record.copies_moved = {13, 14, 0, 15, 16, 0};
    record.model_flops = 1e21;
    record.hardware_flops = 2e21;
    return record;
}

}  // namespace quadrille
