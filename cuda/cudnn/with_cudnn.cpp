// Attention by cuDNN's graphs: one for each shape, type and direction, built when it is first asked about and kept. Softmax statistics are turned
// from [b,s,n] to cuDNN's [b,n,s] and back by a kernel of ours: before 9.26 cuDNN reads no other layout rightly. Gradients are made in a fixed order.
//
// This has been compiled and linked, and has not run on any device.
#include "base/error.hpp"
#include "base/say.hpp"
#include "cuda/attention_tiles.hpp"
#include "cuda/error.hpp"
#include "cuda/fused_attention.hpp"
#include "cuda/library_workspace.hpp"

#include <cudnn_frontend.h>

#include <cmath>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace quadrille::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Id : std::int64_t { id_q = 1, id_k, id_v, id_o, id_statistics, id_d_o, id_dq, id_dk, id_dv };

void check(cudnnStatus_t status, const char* what) {
    if (status != CUDNN_STATUS_SUCCESS) throw Error(Exit::rank_failed, fmt::format("CUDA: {}: {}", what, cudnnGetErrorString(status)));
}

fe::DataType_t type_of(DType type) { return type == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF; }

// A tensor [b, positions, heads, d] in memory, which cuDNN calls b, heads, positions, d.
std::vector<std::int64_t> extents(const AttentionShape& a, std::int64_t positions, std::int64_t heads) { return {a.b, heads, positions, a.d}; }
std::vector<std::int64_t> strides(const AttentionShape& a, std::int64_t positions, std::int64_t heads) {
    return {positions * heads * a.d, a.d, heads * a.d, 1};
}

struct Plan {
    std::unique_ptr<fe::graph::Graph> graph;  // null: not covered
    std::int64_t statistics_bytes = 0, graph_bytes = 0;
};

Tensor input(fe::graph::Graph& graph, const AttentionShape& a, std::int64_t positions, std::int64_t heads, Id id) {
    return graph.tensor(fe::graph::Tensor_attributes().set_uid(id).set_dim(extents(a, positions, heads)).set_stride(strides(a, positions, heads)));
}

void output(const Tensor& x, const AttentionShape& a, std::int64_t positions, std::int64_t heads, Id id) {
    x->set_output(true).set_uid(id).set_dim(extents(a, positions, heads)).set_stride(strides(a, positions, heads));
}

void add_forward(fe::graph::Graph& graph, const AttentionShape& a, float scale) {
    const Tensor q = input(graph, a, a.s, a.n, id_q), k = input(graph, a, a.t, a.g, id_k), v = input(graph, a, a.t, a.g, id_v);
    auto attributes = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true).set_causal_mask(true).set_attn_scale(scale);
    const auto [o, statistics] = graph.sdpa(q, k, v, attributes);
    output(o, a, a.s, a.n, id_o);
    statistics->set_output(true).set_uid(id_statistics).set_data_type(fe::DataType_t::FLOAT);
}

void add_backward(fe::graph::Graph& graph, const AttentionShape& a, float scale) {
    const Tensor q = input(graph, a, a.s, a.n, id_q), k = input(graph, a, a.t, a.g, id_k), v = input(graph, a, a.t, a.g, id_v);
    const Tensor o = input(graph, a, a.s, a.n, id_o), d_o = input(graph, a, a.s, a.n, id_d_o);
    const Tensor statistics = graph.tensor(fe::graph::Tensor_attributes()
                                               .set_uid(id_statistics)
                                               .set_dim({a.b, a.n, a.s, 1})
                                               .set_stride({a.n * a.s, a.s, 1, 1})
                                               .set_data_type(fe::DataType_t::FLOAT));
    auto attributes =
        fe::graph::SDPA_backward_attributes().set_name("attention_dx").set_causal_mask(true).set_attn_scale(scale).set_deterministic_algorithm(true);
    const auto [dq, dk, dv] = graph.sdpa_backward(q, k, v, o, d_o, statistics, attributes);
    output(dq, a, a.s, a.n, id_dq);
    output(dk, a, a.t, a.g, id_dk);
    output(dv, a, a.t, a.g, id_dv);
}

}  // namespace

class FusedAttention::Plans {
  public:
    Plans() = default;
    ~Plans() {
        if (handle_) cudnnDestroy(handle_);
    }
    Plans(const Plans&) = delete;
    Plans& operator=(const Plans&) = delete;

    // The plan of a shape; its graph is null where cuDNN has none, or none in the memory allowed.
    const Plan& of(const AttentionShape& a, DType type, bool backward) {
        const std::scoped_lock lock(mutex_);
        const auto key = std::tuple(a.b, a.s, a.t, a.n, a.g, a.d, type, backward);
        const auto [at, is_new] = plans_.try_emplace(key);
        if (is_new && open()) at->second = make(a, type, backward);
        return at->second;
    }

    void run(const Plan& plan, std::unordered_map<std::int64_t, void*> tensors, std::byte* memory, cudaStream_t stream) {
        check(cudnnSetStream(handle_, stream), "handing cuDNN a stream");
        auto status = plan.graph->execute(handle_, tensors, memory);
        if (status.is_bad()) throw Error(Exit::rank_failed, fmt::format("CUDA: attention by cuDNN: {}", status.get_message()));
    }

  private:
    // When the first shape is asked about; whether cuDNN can be used. Another version among the libraries, or one too new for the driver, costs time
    // and not the run: there are our own kernels.
    bool open() {
        if (std::exchange(opened_, true)) return handle_ != nullptr;
        const cudnnStatus_t status = cudnnCreate(&handle_);
        if (status == CUDNN_STATUS_SUCCESS) return true;
        handle_ = nullptr;
        say(fmt::format("attention is by our own kernels alone: cuDNN does not open: {}", cudnnGetErrorString(status)));
        return false;
    }
    Plan make(const AttentionShape& a, DType type, bool backward) {
        Plan plan;
        auto graph = std::make_unique<fe::graph::Graph>();
        graph->set_io_data_type(type_of(type)).set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
        const float scale = 1.0f / std::sqrt(static_cast<float>(a.d));
        backward ? add_backward(*graph, a, scale) : add_forward(*graph, a, scale);
        if (graph->build(handle_, {fe::HeurMode_t::A}).is_bad() || graph->get_workspace_size(plan.graph_bytes).is_bad()) return {};
        plan.statistics_bytes = parts_of(a.b * a.n * a.s * 4, 256) * 256;
        if (plan.statistics_bytes + plan.graph_bytes > most_fused_bytes) return {};
        plan.graph = std::move(graph);
        return plan;
    }

    cudnnHandle_t handle_ = nullptr;
    bool opened_ = false;
    std::mutex mutex_;
    std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, DType, bool>, Plan> plans_;
};

FusedAttention::FusedAttention() : plans_(std::make_unique<Plans>()) {}
FusedAttention::~FusedAttention() = default;

std::int64_t FusedAttention::workspace(const AttentionShape& shape, DType type, bool backward) const {
    if (!fused_shape(shape, type)) return 0;
    const Plan& plan = plans_->of(shape, type, backward);
    return plan.graph ? bytes_for_library(plan.statistics_bytes + plan.graph_bytes) : 0;
}

void FusedAttention::forward(const Attention& a, void* o, float* lse, cudaStream_t stream) {
    const Plan& plan = plans_->of(a.shape, a.type, false);
    std::byte* const memory = place_for_library(a.workspace);
    auto* const statistics = reinterpret_cast<float*>(memory);
    plans_->run(plan,
                {{id_q, const_cast<void*>(a.q)}, {id_k, const_cast<void*>(a.k)}, {id_v, const_cast<void*>(a.v)}, {id_o, o}, {id_statistics, statistics}},
                memory + plan.statistics_bytes, stream);
    turn_statistics(statistics, lse, a.shape.b, a.shape.n, a.shape.s, stream);
}

void FusedAttention::backward(const Attention& a, const void* o, const float* lse, const void* d_o, void* dq, void* dk, void* dv,
                              cudaStream_t stream) {
    const Plan& plan = plans_->of(a.shape, a.type, true);
    std::byte* const memory = place_for_library(a.workspace);
    auto* const statistics = reinterpret_cast<float*>(memory);
    turn_statistics(lse, statistics, a.shape.b, a.shape.s, a.shape.n, stream);
    plans_->run(plan,
                {{id_q, const_cast<void*>(a.q)}, {id_k, const_cast<void*>(a.k)}, {id_v, const_cast<void*>(a.v)}, {id_o, const_cast<void*>(o)},
                 {id_d_o, const_cast<void*>(d_o)}, {id_statistics, statistics}, {id_dq, dq}, {id_dk, dk}, {id_dv, dv}},
                memory + plan.statistics_bytes, stream);
}

}  // namespace quadrille::cuda
