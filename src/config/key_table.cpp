// The rows of the table of keys. Adding a key is one row here and, if it varies, one member of Config.
#include "config/key_rows.hpp"

namespace quadrille::input {

namespace {

using namespace rows;
using C = Config;
constexpr double most_ranks = 2147483647.0;        // MPI counts them in an int
constexpr double most_bytes = 1125899906842624.0;  // 1024 TiB
constexpr double least_eps = 1e-37;                // in fp32 what is smaller loses digits, and below 1e-45 is zero

void model_keys(std::vector<Key>& k) {
    constexpr auto m = &C::model;
    using M = ModelConfig;
    k.push_back(integer("model.num_layers", "12", from(1, 100000), bind<m, &M::num_layers>(), "transformer blocks"));
    k.push_back(integer("model.hidden_size", "768", from(1, 1 << 20), bind<m, &M::hidden_size>(), "width of the residual stream"));
    k.push_back(integer("model.num_attention_heads", "12", from(1, 1 << 16), bind<m, &M::num_attention_heads>(),
                        "query heads; tp must divide them"));
    k.push_back(integer("model.num_key_value_heads", "auto", from(1, 1 << 16), bind<m, &M::num_key_value_heads>(),
                        "grouped-query attention when fewer than the query heads; auto = num_attention_heads"));
    k.push_back(
        integer("model.head_dim", "auto", from(1, 1 << 16), bind<m, &M::head_dim>(), "auto = hidden_size / num_attention_heads"));
    k.push_back(integer("model.ffn_hidden_size", "auto", from(1, 1 << 24), bind<m, &M::ffn_hidden_size>(),
                        "auto = 4 x hidden_size; for swiglu 8/3 x hidden_size, rounded up to a multiple of 256"));
    k.push_back(integer("model.vocab_size", "50257", from(1, 2147483647.0), bind<m, &M::vocab_size>(),
                        "any size; padded to a multiple of tp inside"));
    k.push_back(integer("model.seq_length", "1024", from(1, 1 << 30), bind<m, &M::seq_length>(), "tokens per sequence"));
    k.push_back(choice<m, &M::normalization>("model.normalization", "before attention, before the MLP and at the end"));
    k.push_back(number("model.norm_eps", "1e-5", from(least_eps, 1), bind<m, &M::norm_eps>(), "added to the variance"));
    k.push_back(choice<m, &M::activation>("model.activation", "gelu is the tanh form; swiglu has a gate"));
    k.push_back(
        choice<m, &M::position_embedding>("model.position_embedding", "a table of seq_length positions, rotary angles, or none"));
    k.push_back(
        number("model.rotary_base", "10000", above(1, 1e12), bind<m, &M::rotary_base>(), "base of the rotary angles (rope only)"));
    k.push_back(flag("model.bias", "true", bind<m, &M::bias>(), "biases of the linear layers; layernorm always has its own"));
    k.push_back(flag("model.tie_word_embeddings", "true", bind<m, &M::tie_word_embeddings>(), "the head is the embedding table"));
    k.push_back(number("model.hidden_dropout", "0.0", below(0, 1), bind<m, &M::hidden_dropout>(),
                       "on the embeddings and on each block's two outputs"));
    k.push_back(
        number("model.attention_dropout", "0.0", below(0, 1), bind<m, &M::attention_dropout>(), "on the attention weights"));
    constexpr auto l = &C::lora;
    using L = LoraConfig;
    k.push_back(integer("model.lora.rank", "null", from(1, 1 << 20), bind_or_word<l, &L::rank>(),
                        "of low-rank adapters; with them all other parameters are frozen. null, or model.lora: null = none"));
    k.push_back(number("model.lora.alpha", "auto", above(0, 1e6), bind_or_word<l, &L::alpha>(),
                       "the adapters' product counts alpha / rank times; auto = rank"));
    k.push_back(row("model.lora.targets", KeyType::paths, "[all]", bind<l, &L::targets>(),
                    "matrices that get one: all, or parts of their names, such as q, v, mlp, layers.3.attention.o"));
    k.push_back(number("model.init_std", "0.02", from(0, 1000), bind<m, &M::init_std>(),
                       "standard deviation of the initial weights; residual projections init_std / sqrt(2 x num_layers)"));
}

void grid_keys(std::vector<Key>& k) {
    constexpr auto g = &C::grid;
    using G = GridConfig;
    k.push_back(integer("grid.dp", "auto", from(1, most_ranks), bind<g, &G::dp>(), "data parallel; auto = ranks / (tp x pp x sp)"));
    k.push_back(integer("grid.tp", "1", from(1, most_ranks), bind<g, &G::tp>(), "tensor parallel: cuts heads, MLP and vocabulary"));
    k.push_back(integer("grid.pp", "1", from(1, most_ranks), bind<g, &G::pp>(), "pipeline parallel: cuts the layers into stages"));
    k.push_back(integer("grid.sp", "1", from(1, most_ranks), bind<g, &G::sp>(),
                        "cuts every sequence (context parallelism); Megatron's sequence parallel is tensor.sequence_parallel"));
    k.push_back(or_word(row("grid.order", KeyType::order, "tp-sp-dp-pp", bind_or_word<g, &G::order>(),
                            "fastest-varying axis first: which ranks are neighbours; auto = the axes that send most over the links that are measured "
                            "to be fastest"),
                        "auto"));
    k.push_back(integer("grid.pretend_nodes", "0", from(0, 1024), bind<g, &G::pretend_nodes>(),
                        "for tests: split this machine into so many nodes, for comm.algorithm and grid.order; 0 = as it is"));
    k.push_back(flag("tensor.sequence_parallel", "false", bind<&C::tensor, &TensorConfig::sequence_parallel>(),
                     "between the tp regions each tp rank holds a part of the sequence (Megatron)"));
    k.push_back(choice<&C::sequence, &SequenceConfig::method>(
        "sequence.method",
        "how attention spans the sp axis: keys and values turn around a ring, or heads are exchanged for sequence"));
    k.push_back(choice<&C::sequence, &SequenceConfig::layout>(
        "sequence.layout",
        "which part of a sequence an sp rank holds: zigzag balances causal attention; ulysses is always contiguous"));
    constexpr auto p = &C::pipeline;
    using P = PipelineConfig;
    k.push_back(choice<p, &P::schedule>("pipeline.schedule", "order of the forward and backward passes; zero-bubble is ZB-H1"));
    k.push_back(integer("pipeline.virtual_stages", "1", from(1, 100000), bind<p, &P::virtual_stages>(),
                        "chunks per pp coordinate, for interleaved (2 or more) and gpipe"));
    k.push_back(number_of(KeyType::integers, "pipeline.layers_per_stage", "auto", from(1, 100000), bind<p, &P::layers_per_stage>(),
                          "one count per chunk, pp x virtual_stages of them; auto = by cost: the head counts as the layers it is worth"));
}

void sharding_and_offload_keys(std::vector<Key>& k) {
    constexpr auto z = &C::sharding;
    using Z = ShardingConfig;
    k.push_back(integer("sharding.zero_stage", "0", from(0, 3), bind<z, &Z::zero_stage>(),
                        "ZeRO over dp and sp: 1 cuts optimizer state, 2 gradients too, 3 parameters too"));
    k.push_back(integer("sharding.shard_size", "auto", from(1, most_ranks), bind<z, &Z::shard_size>(),
                        "ranks of dp that share one copy of what is cut (hybrid sharding when fewer than dp); auto = dp"));
    k.push_back(integer("sharding.prefetch", "1", from(0, 100000), bind<z, &Z::prefetch>(),
                        "stage 3: units gathered ahead of their use"));
    k.push_back(flag("sharding.keep_gathered", "auto", bind<z, &Z::keep_gathered>(),
                     "stage 3, offloaded parameters: units brought in for the forward pass stay for the backward pass as far as device.memory_limit "
                     "has room, else they are brought in again; auto = true when device.memory_limit is given: one derived from the machine "
                     "is not filled"));
    k.push_back(choice<&C::recompute, &RecomputeConfig::granularity>(
        "recompute.granularity",
        "what a block computes again in its backward: selective keeps matrix products and attention, full only the block's input"));
    constexpr auto o = &C::offload;
    using O = OffloadConfig;
    k.push_back(choice<o, &O::optimizer>("offload.optimizer", "tier of memory that holds the optimizer state"));
    k.push_back(choice<o, &O::parameters>("offload.parameters", "tier of memory that holds the parameters"));
    k.push_back(choice<o, &O::gradients>("offload.gradients", "tier of memory in which gradients of micro-batches are summed: none or cpu"));
    k.push_back(choice<o, &O::activations>("offload.activations", "tier of memory that holds what the backward pass needs of the forward"));
    k.push_back(or_word(row("offload.nvme_path", KeyType::text, "null", bind_or_word<o, &O::nvme_path>(),
                            "directory on a local disk: each rank makes a file there for the nvme tier, which vanishes with it"),
                        "null"));
    k.push_back(bytes("offload.block_size", "1MiB", from(512, 1 << 30), bind<o, &O::block_size>(), "bytes per read or write of the nvme tier"));
    k.push_back(integer("offload.queue_depth", "32", from(1, 4096), bind<o, &O::queue_depth>(), "reads and writes in flight"));
}

void comm_keys(std::vector<Key>& k) {
    constexpr auto c = &C::comm;
    using M = CommConfig;
    k.push_back(settled("comm.backend", {"auto", "mpi"}, "mpi", {"nccl"}, "who carries the messages; auto = mpi"));
    k.push_back(choice<c, &M::algorithm>(
        "comm.algorithm", "how collectives run: ring by messages, shared through memory where a group is inside one node (the same bits), "
                          "hierarchical shared inside nodes and ring across, native by the MPI library; auto = ring or shared, whichever was "
                          "measured to be faster"));
    k.push_back(or_word(bytes("comm.bucket_size", "25MiB", from(1, most_bytes), bind_or_word<c, &M::bucket_size>(),
                              "gradients of whole units are reduced together, as soon as they hold so much; auto = by the links' measured speed and "
                              "the backward pass's time"),
                        "auto"));
    k.push_back(integer("comm.max_count", "auto", from(1, 2147483647.0), bind_or_word<c, &M::max_count>(),
                        "elements per message; auto = as many as MPI takes"));
    k.push_back(flag("comm.check", "false", bind<c, &M::check>(),
                     "debug: compare operation, count, type and number over the group before each collective"));
    k.push_back(flag("comm.overlap", "true", bind<c, &M::overlap>(), "issue moves early, so that they run beside the arithmetic"));
    constexpr auto p = &C::compression;
    using P = CompressionConfig;
    k.push_back(choice<p, &P::method>("comm.compression.method",
                                      "lossy gradients between the ranks that hold a parameter: dp·sp, or with shard_size the copies alone; sums are "
                                      "fp32 and travel whole"));
    k.push_back(number("comm.compression.ratio", "0.01", above(0, 1), bind<p, &P::ratio>(), "topk: part of the elements that is sent, the largest"));
    k.push_back(integer("comm.compression.bits", "4", from(2, 8), bind<p, &P::bits>(), "qsgd: bits per element; with error feedback 3 or more"));
    k.push_back(flag("comm.compression.error_feedback", "true", bind<p, &P::error_feedback>(),
                     "keep what was not sent, and add it to the next gradient: 4 bytes a parameter, and as many while a step runs"));
    k.push_back(row("comm.compression.exclude", KeyType::paths, "[embedding, head]", bind<p, &P::exclude>(),
                    "units that are sent whole: embedding, head, or parts of names, such as layers.3"));
    k.push_back(integer("comm.staleness", "0", from(0, 1), bind<c, &M::staleness>(),
                        "1: an update uses the gradients of the step before, whose sums travel while this step computes; the first updates nothing"));
    k.push_back(integer("comm.watchdog", "300", from(0, 1e9), bind<c, &M::watchdog>(),
                        "seconds that a job may stand still before it says who waits for whom, and stops; 0 = never"));
}

void train_keys(std::vector<Key>& k) {
    constexpr auto t = &C::train;
    using T = TrainConfig;
    const Range batch = from(1, 1e12);
    k.push_back(or_word(
        integer(
            "train.global_batch_size", "32", batch, bind<t, &T::global_batch_size>(),
            "sequences per step = micro_batch_size x gradient_accumulation_steps x dp; two determine the third, a default yields"),
        "auto"));
    k.push_back(or_word(
        integer("train.micro_batch_size", "4", from(1, 1e9), bind<t, &T::micro_batch_size>(), "sequences per rank and pass"),
        "auto"));
    k.push_back(integer("train.gradient_accumulation_steps", "auto", from(1, 1e9), bind<t, &T::gradient_accumulation_steps>(),
                        "micro-batches per rank and step"));
    k.push_back(integer("train.steps", "100", from(1, 1e12), bind<t, &T::steps>(), "updates of the whole run"));
    k.push_back(integer("train.seed", "1234", from(0, 1e18), bind<t, &T::seed>(),
                        "of the initial weights, the dropout and the order of the data"));
    k.push_back(choice<t, &T::precision>("train.precision", "of weights and activations; masters and moments are fp32; fp16 scales the loss"));
    k.push_back(choice<t, &T::gradient_dtype>("train.gradient_dtype",
                                              "accumulation and reduction of gradients: fp32, or as precision"));
    k.push_back(
        number("train.clip_grad", "1.0", from(0, 1e38), bind<t, &T::clip_grad>(), "bound of the global gradient norm; 0 = off"));
    k.push_back(
        choice<t, &T::on_nan>("train.on_nan", "a step with NaN or Inf: end the run with exit code 4, or leave the update out"));
    k.push_back(one_choice("train.deterministic", "run", {"grid"}, "same input and grid, same bits; grid: the same on every grid"));
    k.push_back(number("train.time_limit", "null", above(0, 1e12), bind_or_word<t, &T::time_limit>(),
                       "seconds of the whole process, before which a checkpoint is saved and the job ends with exit code 75; so it is before a Slurm "
                       "job's end"));
}

void optimizer_keys(std::vector<Key>& k) {
    constexpr auto o = &C::optimizer;
    using O = OptimizerConfig;
    k.push_back(choice<o, &O::type>("optimizer.type", "AdamW, or plain gradient descent with the same decay"));
    k.push_back(number("optimizer.lr", "3e-4", from(0, 1e38), bind<o, &O::lr>(), "learning rate at its peak"));
    k.push_back(number("optimizer.min_lr", "3e-5", from(0, 1e38), bind<o, &O::min_lr>(),
                       "where the decay ends; at most lr (the default yields: lr / 10)"));
    k.push_back(choice<o, &O::lr_schedule>("optimizer.lr_schedule", "what follows the warm-up; wsd is constant, then linear"));
    k.push_back(integer("optimizer.warmup_steps", "10", from(0, 1e12), bind<o, &O::warmup_steps>(),
                        "step k of the warm-up (from 1) runs at lr x k / warmup_steps"));
    k.push_back(integer(
        "optimizer.decay_steps", "auto", from(1, 1e12), bind<o, &O::decay_steps>(),
        "linear, cosine: the step that reaches min_lr, auto = train.steps; wsd: length of the last part, auto = train.steps / 10"));
    k.push_back(number("optimizer.weight_decay", "0.1", from(0, 1e38), bind<o, &O::weight_decay>(),
                       "decoupled; on matrices and embeddings, never on biases or norms"));
    k.push_back(number("optimizer.beta1", "0.9", below(0, 1), bind<o, &O::beta1>(), "adamw: first moment"));
    k.push_back(number("optimizer.beta2", "0.95", below(0, 1), bind<o, &O::beta2>(), "adamw: second moment"));
    k.push_back(
        number("optimizer.eps", "1e-8", from(least_eps, 1e38), bind<o, &O::eps>(), "adamw: added to the root of the second moment"));
    constexpr auto s = &C::loss_scale;
    using S = LossScaleConfig;
    k.push_back(number("loss_scale.initial", "65536", from(1, S::most), bind<s, &S::initial>(),
                       "fp16: first factor on the loss in the backward pass, a power of two; halved where gradients overflow"));
    k.push_back(integer("loss_scale.window", "1000", from(1, 1e12), bind<s, &S::window>(), "fp16: good steps in a row before the scale doubles"));
    k.push_back(number("loss_scale.minimum", "1", from(1, S::most), bind<s, &S::minimum>(),
                       "fp16: a power of two; the run stops with exit code 4 where gradients overflow even so"));
}

void device_and_data_keys(std::vector<Key>& k) {
    constexpr auto v = &C::device;
    using V = DeviceConfig;
    k.push_back(settled("device.backend", {"auto", "cpu"}, "cpu", {"cuda"}, "auto = cpu"));
    k.push_back(bytes("device.memory_limit", "auto", from(1, most_bytes), bind_or_word<v, &V::memory_limit>(),
                      "bytes per rank; auto: plan has no limit, train shares what the node has free (or its cgroup)"));
    k.push_back(bytes("device.host_memory_limit", "auto", from(1, most_bytes), bind_or_word<v, &V::host_memory_limit>(),
                      "bytes per rank of the host tier; on CPUs taken out of the same memory; auto = none set aside"));
    k.push_back(integer("device.threads", "auto", from(1, 4096), bind<v, &V::threads>(),
                        "per rank; auto = CPUs in the affinity mask / ranks that share it"));
    constexpr auto d = &C::data;
    using D = DataConfig;
    k.push_back(choice<d, &D::format>(
        "data.format", "text: bytes; tokens: raw ids; llmc and megatron: their files; synthetic: a Markov chain, reads no files"));
    k.push_back(row("data.train", KeyType::paths, "[\"src/**/*.cpp\"]", bind<d, &D::train>(),
                    "paths or globs (** too), sorted bytewise; tried from the input file's folder, then the working directory; ~ "
                    "and $NAME are not expanded; megatron: prefixes"));
    k.push_back(row("data.valid", KeyType::paths, "[]", bind<d, &D::valid>(), "held-out data, written like train"));
    k.push_back(choice<d, &D::dtype>("data.dtype", "of a token in format tokens"));
    k.push_back(or_word(number_of(KeyType::weights, "data.split", "null", from(0, 1e15), bind<d, &D::split>(),
                                  "weights that part one corpus into training, held-out and unused data, as \"969,30,1\""),
                        "null"));
    k.push_back(flag("data.shuffle", "true", bind<d, &D::shuffle>(), "a new order each epoch, the same on every grid"));
    k.push_back(integer("data.end_of_document", "null", from(0, 2147483647.0), bind<d, &D::end_of_document>(),
                        "id of the token that ends a document"));
    k.push_back(flag("data.mask_across_documents", "false", bind<d, &D::mask_across_documents>(),
                     "attention and loss stop at end_of_document"));
    k.push_back(integer("data.prefetch", "2", from(1, 1000), bind<d, &D::prefetch>(), "steps read ahead by a thread"));
}

void run_keys(std::vector<Key>& k) {
    constexpr auto c = &C::checkpoint;
    using K = CheckpointConfig;
    k.push_back(row("checkpoint.directory", KeyType::text, "auto", bind_or_word<c, &K::directory>(),
                    "of the folders step-00000100 and so on; auto = output.directory/checkpoints"));
    k.push_back(integer("checkpoint.interval", "0", from(0, 1e12), bind<c, &K::interval>(),
                        "steps between checkpoints, and one at the end; 0 = none. A stop by signal or time limit always makes one"));
    k.push_back(row("checkpoint.hints", KeyType::map, "{}", bind<c, &K::hints>(), "hints for MPI-IO, such as {romio_ds_write: disable}"));
    k.push_back(integer("checkpoint.keep", "2", from(0, 1e12), bind<c, &K::keep>(),
                        "checkpoints that stay, the newest: older ones go once a new one is whole; 0 = all stay"));
    k.push_back(word_or_path("checkpoint.resume", {"auto", "none"}, bind<c, &K::resume>(),
                             "where to go on: auto = the newest whole checkpoint in checkpoint.directory, afresh where there is none; a step's "
                             "folder, or its parent for the newest whole one there; none = afresh. A path called auto, no or the like is "
                             "written ./no"));
    k.push_back(flag("checkpoint.asynchronous", "false", bind<c, &K::asynchronous>(),
                     "write from a copy in host memory while training goes on"));
    k.push_back(integer("evaluation.interval", "0", from(0, 1e12), bind<&C::evaluation, &EvaluationConfig::interval>(),
                        "steps between evaluations on held-out data, with one after the last step; 0 = never"));
    k.push_back(integer("evaluation.batches", "10", from(1, 1e12), bind<&C::evaluation, &EvaluationConfig::batches>(),
                        "global batches per evaluation"));
    constexpr auto o = &C::output;
    using O = OutputConfig;
    k.push_back(row("output.directory", KeyType::text, "runs/NAME", bind<o, &O::directory>(),
                    "NAME: the input file's stem; from the working directory; ~ and $NAME are not expanded"));
    k.push_back(integer("output.log_interval", "1", from(1, 1e12), bind<o, &O::log_interval>(),
                        "steps between lines on the console and in the record"));
    k.push_back(flag("output.trace", "false", bind<o, &O::trace>(), "begin and end of every operation in trace.h5"));
    k.push_back(flag("output.overwrite", "false", bind<o, &O::overwrite>(),
                     "run into a directory that is not empty; where false, a rerun of the same model keeps the former record as run-DATE.h5"));
}

std::vector<Key> all_keys() {
    std::vector<Key> k;
    model_keys(k);
    grid_keys(k);
    sharding_and_offload_keys(k);
    comm_keys(k);
    train_keys(k);
    optimizer_keys(k);
    device_and_data_keys(k);
    run_keys(k);
    return k;
}

}  // namespace

const std::vector<Key>& keys() {
    static const std::vector<Key> table = all_keys();
    return table;
}

}  // namespace quadrille::input
