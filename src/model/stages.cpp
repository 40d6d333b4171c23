#include "model/model.hpp"

#include <algorithm>
#include <numeric>

namespace quadrille {

Grid grid_of(const Config& c) {
    const int kv = static_cast<int>(c.model.num_key_value_heads);
    const int tq = c.grid.tp / std::gcd(c.grid.tp, kv);
    const int shard = c.sharding.shard_size > 0 ? c.sharding.shard_size : c.grid.dp;
    return Grid::of_user_axes(c.grid.dp, c.grid.tp, c.grid.pp, c.grid.sp, shard, tq, c.grid.order);
}

std::vector<int> layers_per_chunk(const Config& c) {
    if (!c.pipeline.layers_per_stage.empty()) return c.pipeline.layers_per_stage;
    const auto chunks = static_cast<std::size_t>(c.grid.pp * c.pipeline.virtual_stages);
    const auto layers = static_cast<int>(c.model.num_layers);
    // Multiply-adds per token: of a block's weights and of the head, in units of a block.
    const ModelConfig& m = c.model;
    const double heads = static_cast<double>(2 * m.num_attention_heads + 2 * m.num_key_value_heads);  // q and o, k and v
    const double projections = static_cast<double>(m.hidden_size * m.head_dim) * heads;
    const double mlp = static_cast<double>(m.hidden_size * m.ffn_hidden_size) * (m.activation == Activation::swiglu ? 3 : 2);
    // The whole square of scores and of their product with v: attention's small products lose what causality saves.
    const double scores = 2.0 * static_cast<double>(m.seq_length * m.num_attention_heads * m.head_dim);
    const double head = static_cast<double>(m.hidden_size * m.vocab_size) / (projections + mlp + scores);
    std::vector<int> out(chunks, 1);
    std::vector<double> cost(chunks, 1.0);
    cost.back() += head;
    for (int left = layers - static_cast<int>(chunks); left > 0; --left) {
        // Of equals the last: under 1f1b earlier stages hold more micro-batches in flight.
        const auto least = static_cast<std::size_t>(std::distance(std::min_element(cost.rbegin(), cost.rend()), cost.rend()) - 1);
        ++out[least];
        cost[least] += 1.0;
    }
    return out;
}

}  // namespace quadrille
