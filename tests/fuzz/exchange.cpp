// The files of Hugging Face's models: config.json, a file of safetensors, and the index of several.
//
// An input is a letter and a text: 'c' config.json, 's' a file of tensors, 'i' an index; of the last two the names and bytes are read, too.
#include "fuzz/fuzz.hpp"

#include "exchange/model_json.hpp"
#include "exchange/tensor_folder.hpp"

using namespace quadrille;
using namespace quadrille::fuzz;

namespace {

namespace fs = std::filesystem;

void read_tensors(const fs::path& folder, std::int64_t size) {
    const TensorFolder tensors(folder);
    for (const auto& named : tensors.places()) {
        const TensorFolder::Place& place = named.second;
        const SafeTensor& t = *place.tensor;
        expect(t.offset >= 8 && t.bytes >= 0 && t.bytes <= size - t.offset, "a tensor lies in its file", t.name);
        std::vector<float> values(static_cast<std::size_t>(std::min<std::int64_t>(t.elements(), 4096)));
        takes([&] { place.file->read(t, 0, values); });
    }
}

void read_model(const fs::path& file) {
    TheirModel model;
    if (!takes([&] { model = read_model_json(file); })) return;
    write(file, model_json(model.family, model.model, DType::f32, std::nullopt));
    expect(read_model_json(file).model == model.model, "what is written is read as the same model");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const TemporaryDirectory folder;
    Bytes input(data, size);
    const char letter = static_cast<char>(input.byte());
    fs::remove(folder.path() / whole_name);
    if (letter == 'c') {
        write(folder.path() / "config.json", input.rest());
        read_model(folder.path() / "config.json");
        return 0;
    }
    write(folder.path() / (letter == 's' ? whole_name : index_name), input.rest());
    takes([&] { read_tensors(folder.path(), static_cast<std::int64_t>(size) - 1); });
    return 0;
}
