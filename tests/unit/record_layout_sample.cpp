// Writes the sample record and a small trace into the directory it is given: the input of record_layout.py.
#include "record/record_writer.hpp"
#include "record/trace.hpp"
#include "unit/record_sample.hpp"

int main(int argc, char** argv) {
    using namespace quadrille;
    if (argc != 2) return 2;
    RunRecord record = sample_record();
    record.exit_code = 0;
    record.complete = true;
    RecordWriter(argv[1]).write(record);
    write_trace(argv[1], {{"compute", "tp"}, {"matmul", "all_reduce"}, {{7, 1, {{0, 0, 0.5, 1}, {1, 1, 1, 2.5}}}},
                          {{1, 0, 0, 0.5, {8, 0, 0, 4, 0}}, {1, 1, 0, 0.5, {}}}});
}
