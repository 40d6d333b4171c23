#include "model/linear.hpp"

#include "ir/table.hpp"

namespace quadrille {

Adapter adapter_of(const Linear& l, std::int64_t rank) {
    const Signature s = parse_signature(l.product);
    const std::string& letters_w = s.in[1];
    Weight a = {l.weight.name + ".lora_a", {rank}, {{}}, Init::uniform}, b = {l.weight.name + ".lora_b", {}, {}, Init::zeros};
    a.adapter = b.adapter = true;
    a.fan_in = 1;
    std::string letters_a = "r", letters_b;
    for (std::size_t d = 0; d < letters_w.size(); ++d) {
        const bool contracted = s.in[0].find(letters_w[d]) != std::string::npos;
        Weight& w = contracted ? a : b;
        w.shape.push_back(l.weight.shape[d]);
        w.cuts.push_back(l.weight.cuts[d]);
        (contracted ? letters_a : letters_b) += letters_w[d];
        if (contracted) a.fan_in *= l.weight.shape[d];
    }
    b.shape.push_back(rank);
    b.cuts.push_back({});
    const std::string &x = s.in[0], &y = s.out[0];
    return {std::move(a), std::move(b), x + "," + letters_a + "->bsr", "bsr," + letters_b + "r->" + y, y + "," + y + "->" + y};
}

}  // namespace quadrille
