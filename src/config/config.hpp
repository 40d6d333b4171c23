// The input file, resolved: every `auto` replaced by what was derived from it, but for two that ask the machine (plan/choices.hpp). Plain data, made
// by `load_config` (config/load.hpp); nobody else changes it. Keys that have one value only in this build have no member here.
//
// Names are those of the input file, section by section (inputs/reference.yaml explains each).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace quadrille {

enum class Normalization { layernorm, rmsnorm };
enum class Activation { gelu, swiglu };
enum class PositionEmbedding { learned, rope, none };
enum class SequenceMethod { ring, ulysses };
enum class SequenceLayout { zigzag, contiguous };
enum class Schedule { gpipe, one_f_one_b, interleaved, zero_bubble };
enum class Granularity { none, selective, full };
enum class Precision { fp32, bf16, fp16 };
enum class OffloadTo { none, cpu, nvme };
enum class CompressionMethod { none, bf16, fp16, topk, qsgd };
enum class OnNan { stop, skip };
enum class OptimizerType { adamw, sgd };
enum class LrSchedule { constant, linear, cosine, wsd };
enum class CollectiveAlgorithm { automatic, ring, shared, hierarchical, native };
enum class DataFormat { text, tokens, llmc, megatron, synthetic };
enum class TokenType { uint16, uint32 };

struct ModelConfig {
    std::int64_t num_layers = 12, hidden_size = 768, num_attention_heads = 12, num_key_value_heads = 12, head_dim = 64;
    std::int64_t ffn_hidden_size = 3072, vocab_size = 50257, seq_length = 1024;
    Normalization normalization = Normalization::layernorm;
    double norm_eps = 1e-5;
    Activation activation = Activation::gelu;
    PositionEmbedding position_embedding = PositionEmbedding::learned;
    double rotary_base = 10000;
    bool bias = true, tie_word_embeddings = true;
    double hidden_dropout = 0, attention_dropout = 0, init_std = 0.02;
    bool operator==(const ModelConfig&) const = default;
};

// Low-rank adapters, section model.lora (config/lora.hpp): with them the model's own weights are frozen.
struct LoraConfig {
    std::int64_t rank = 0;  // 0: none
    double alpha = 0;       // resolved: rank, if not given
    std::vector<std::string> targets = {"all"};
    bool on() const { return rank > 0; }
    bool operator==(const LoraConfig&) const = default;
};

struct GridConfig {
    int dp = 1, tp = 1, pp = 1, sp = 1;
    std::vector<std::string> order = {"tp", "sp", "dp", "pp"};  // fastest-varying first; empty: left to the machine (plan/choices.hpp)
    int pretend_nodes = 0;  // 0: the nodes are what they are
    std::int64_t ranks() const { return std::int64_t{dp} * tp * pp * sp; }
    bool operator==(const GridConfig&) const = default;
};

struct TensorConfig {
    bool sequence_parallel = false;
    bool operator==(const TensorConfig&) const = default;
};
struct SequenceConfig {
    SequenceMethod method = SequenceMethod::ring;
    SequenceLayout layout = SequenceLayout::zigzag;
    bool operator==(const SequenceConfig&) const = default;
};
struct PipelineConfig {
    Schedule schedule = Schedule::one_f_one_b;
    int virtual_stages = 1;
    std::vector<int> layers_per_stage;  // empty: auto, by cost. Else one entry per virtual stage (pp·virtual_stages)
    bool operator==(const PipelineConfig&) const = default;
};
struct ShardingConfig {
    int zero_stage = 0;
    int shard_size = 0;  // ranks of dp that share one copy of what the stage cuts; 0: all of them
    int prefetch = 1;    // units gathered ahead of their use
    bool keep_gathered = false;  // from forward to backward, as far as device.memory_limit has room
    bool operator==(const ShardingConfig&) const = default;
};
struct RecomputeConfig {
    Granularity granularity = Granularity::none;
    bool operator==(const RecomputeConfig&) const = default;
};
struct OffloadConfig {
    OffloadTo optimizer = OffloadTo::none, parameters = OffloadTo::none, gradients = OffloadTo::none, activations = OffloadTo::none;
    std::string nvme_path;                // a directory; empty: none given
    std::int64_t block_size = 1 << 20;    // bytes per read or write
    int queue_depth = 32;                 // reads and writes in flight
    bool uses(OffloadTo to) const { return optimizer == to || parameters == to || gradients == to || activations == to; }
    bool operator==(const OffloadConfig&) const = default;
};
struct CommConfig {
    CollectiveAlgorithm algorithm = CollectiveAlgorithm::automatic;
    std::int64_t bucket_size = 25 << 20;  // bytes; 0: left to the machine (plan/choices.hpp)
    std::int64_t max_count = 0;           // elements per message; 0: as many as the message library takes
    bool check = false;                   // members compare what they are about to do before each collective
    bool overlap = true;
    std::int64_t watchdog = 300;          // seconds that the job may stand still; 0: for ever
    int staleness = 0;                    // 1: an update uses the gradients of the step before
    bool operator==(const CommConfig&) const = default;
};
// Lossy gradients on the wire, section comm.compression (config/compression.hpp).
struct CompressionConfig {
    CompressionMethod method = CompressionMethod::none;
    double ratio = 0.01;  // topk: part of the elements that is sent
    int bits = 4;         // qsgd: of an element
    bool error_feedback = true;
    std::vector<std::string> exclude = {"embedding", "head"};
    bool on() const { return method != CompressionMethod::none; }
    bool operator==(const CompressionConfig&) const = default;
};
struct TrainConfig {
    std::int64_t global_batch_size = 32, micro_batch_size = 4, gradient_accumulation_steps = 8;
    std::int64_t steps = 100;
    std::uint64_t seed = 1234;
    Precision precision = Precision::fp32;
    Precision gradient_dtype = Precision::fp32;
    double clip_grad = 1.0;  // 0: off
    OnNan on_nan = OnNan::stop;
    double time_limit = 0;  // seconds since the start; 0: none
    bool operator==(const TrainConfig&) const = default;
};
struct OptimizerConfig {
    OptimizerType type = OptimizerType::adamw;
    double lr = 3e-4, min_lr = 3e-5;
    LrSchedule lr_schedule = LrSchedule::cosine;
    std::int64_t warmup_steps = 10, decay_steps = 100;
    double weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
    bool operator==(const OptimizerConfig&) const = default;
};
// fp16. Powers of two, so that scaling rounds nothing.
struct LossScaleConfig {
    double initial = 65536;
    std::int64_t window = 1000;  // good steps in a row before the scale doubles
    double minimum = 1;
    static constexpr double most = 1099511627776;  // 2^40: no scale is larger
    bool operator==(const LossScaleConfig&) const = default;
};
struct DeviceConfig {
    std::int64_t memory_limit = 0;  // bytes; 0: none known
    std::int64_t host_memory_limit = 0;
    int threads = 1;
    bool operator==(const DeviceConfig&) const = default;
};
struct DataConfig {
    DataFormat format = DataFormat::text;
    // Absolute paths, globs expanded. megatron: prefixes, without .bin or .idx. synthetic: empty.
    std::vector<std::string> train, valid;
    TokenType dtype = TokenType::uint16;
    std::vector<double> split;  // weights of training, held-out and unused data; empty: none
    bool shuffle = true;
    std::optional<std::int64_t> end_of_document;
    bool mask_across_documents = false;
    int prefetch = 2;
    bool operator==(const DataConfig&) const = default;
};
struct CheckpointConfig {
    std::string directory;                     // of the folders step-00000100 and so on
    std::int64_t interval = 0;                 // steps; 0: none, but for the one that a stop makes
    std::map<std::string, std::string> hints;  // for MPI-IO, by the names that its library knows
    std::int64_t keep = 2;                     // the newest ones, which stay; 0: all do
    std::string resume = "auto";               // auto, none, or a path
    bool asynchronous = false;
    // Whether saves are written behind training: those of a stop, or of the end, are waited for.
    bool behind_training() const { return asynchronous && interval > 0; }
    bool operator==(const CheckpointConfig&) const = default;
};
struct EvaluationConfig {
    std::int64_t interval = 0, batches = 10;  // interval in steps, 0: never; batches of the global size
    bool operator==(const EvaluationConfig&) const = default;
};
struct OutputConfig {
    std::string directory;
    std::int64_t log_interval = 1;
    bool trace = false, overwrite = false;
    bool operator==(const OutputConfig&) const = default;
};

struct Config {
    ModelConfig model;
    LoraConfig lora;
    GridConfig grid;
    TensorConfig tensor;
    SequenceConfig sequence;
    PipelineConfig pipeline;
    ShardingConfig sharding;
    RecomputeConfig recompute;
    OffloadConfig offload;
    CommConfig comm;
    CompressionConfig compression;
    TrainConfig train;
    OptimizerConfig optimizer;
    LossScaleConfig loss_scale;
    DeviceConfig device;
    DataConfig data;
    CheckpointConfig checkpoint;
    EvaluationConfig evaluation;
    OutputConfig output;
    bool operator==(const Config&) const = default;
};

}  // namespace quadrille
