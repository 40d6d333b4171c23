#include "config_fixture.hpp"

using namespace quadrille;

TEST_CASE_FIXTURE(ConfigFixture, "the model's derived sizes") {
    const Config gpt = load("model: {hidden_size: 64, num_attention_heads: 4}\n");
    CHECK(gpt.model.num_key_value_heads == 4);
    CHECK(gpt.model.head_dim == 16);
    CHECK(gpt.model.ffn_hidden_size == 256);
    CHECK(load("model: {hidden_size: 4096, num_attention_heads: 32, activation: swiglu}\n").model.ffn_hidden_size ==
          11008);  // Llama-2 7B
    CHECK(load("model: {hidden_size: 5120, num_attention_heads: 40, activation: swiglu}\n").model.ffn_hidden_size ==
          13824);  // Llama-2 13B
    CHECK(load("model: {hidden_size: 96, num_attention_heads: 4, activation: swiglu}\n").model.ffn_hidden_size == 256);
    const Config free =
        load("model: {hidden_size: 64, num_attention_heads: 4, head_dim: 24, num_key_value_heads: 2, ffn_hidden_size: 100}\n");
    CHECK(free.model.head_dim == 24);
    CHECK(free.model.num_key_value_heads == 2);
    CHECK(free.model.ffn_hidden_size == 100);
    check_has(refusal("model: {hidden_size: 62, num_attention_heads: 4}\n"),
              "found num_attention_heads 4, which do not divide hidden_size 62");
    CHECK(refusal("model: {hidden_size: 62, num_attention_heads: 4, head_dim: 16}\n").empty());
    check_has(refusal("model: {num_key_value_heads: 5}\n"),
              "found num_key_value_heads 5, which do not divide num_attention_heads 12");
    check_has(refusal("model: {head_dim: 15, position_embedding: rope}\n"),
              "in.yaml:1:19: model.head_dim: found position_embedding rope with head_dim 15");
    check_has(refusal("model: {hidden_size: 36, position_embedding: rope}\n"), "found position_embedding rope with head_dim 3");
    CHECK(refusal("model: {head_dim: 15}\n").empty());
}

TEST_CASE_FIXTURE(ConfigFixture, "sizes beyond 32 bits, and a bound before 64 bits overflow") {
    const Config c = load(
        "model: {seq_length: 1048576, vocab_size: 150000, hidden_size: 16384, num_attention_heads: 128, num_layers: 126, "
        "ffn_hidden_size: 53248}\n"
        "train: {micro_batch_size: 8, gradient_accumulation_steps: 1000}\n");
    CHECK(c.model.seq_length * c.model.vocab_size * c.train.micro_batch_size == 1258291200000);
    CHECK(c.train.global_batch_size == 8000);
    CHECK(load("train: {steps: 5e9, seed: 1e12}\noptimizer: {warmup_steps: 3e9}\n").train.steps == 5000000000);
    check_has(refusal("model: {num_layers: 1e5, hidden_size: 1048576, num_attention_heads: 65536, ffn_hidden_size: 1.6e7}\n"),
              "parameters, allowed: up to 1e+15");
    check_has(refusal("model: {seq_length: 1e9}\ntrain: {global_batch_size: 1e9, micro_batch_size: 1}\n"),
              "tokens per step, allowed: up to 1e+15");
    check_has(refusal("grid: {dp: 2e9, tp: 2e9, pp: 2e9, sp: 2e9}\n"), "dp·tp·pp·sp is 2000000000 x 2000000000");
}

TEST_CASE_FIXTURE(ConfigFixture, "dp is what is left of the ranks, and the product is theirs") {
    CHECK(load("grid: {tp: 2}\n").grid.dp == 1);
    job.ranks = 8;
    CHECK(load("grid: {tp: 2, pp: 2}\n").grid.dp == 2);
    CHECK(load("grid: {dp: 8}\n").grid.ranks() == 8);
    check_has(refusal("grid: {tp: 3}\n"),
              "in.yaml:1:12: grid.tp: tp·pp·sp is 3 x 1 x 1 = 3 but --ranks is 8, allowed: a divisor of 8; or a multiple of 3 ranks, such as 9");
    for (const int ranks : {3, 5, 1, 8}) {
        job.ranks = ranks;
        job.planning = false;
        const std::string text = refusal("grid: {dp: 2, tp: 2, pp: 1, sp: 1}\ndata: {format: synthetic}\n");
        check_has(text, fmt::format("grid.dp: dp·tp·pp·sp is 2 x 2 x 1 x 1 = 4 but MPI has {} ranks", ranks));
        CHECK(lines(text) == 1);
    }
    job.ranks = 4;
    CHECK(load("grid: {dp: 2, tp: 2, pp: 1, sp: 1}\ndata: {format: synthetic}\n") ==
          load("grid: {tp: 2}\ndata: {format: synthetic}\n"));
}

TEST_CASE_FIXTURE(ConfigFixture, "axes of extent 1 are as good as none") {
    CHECK(load("grid: {dp: 1, tp: 1, pp: 1, sp: 1}\nmodel: {seq_length: 31}\n") == load("model: {seq_length: 31}\n"));
    CHECK(refusal("model: {seq_length: 31}\ntensor: {sequence_parallel: true}\n").empty());
}

TEST_CASE_FIXTURE(ConfigFixture, "tensor parallel: heads, kv heads and ffn divide") {
    check_has(refusal("model: {hidden_size: 60, num_attention_heads: 6}\ngrid: {tp: 4}\n"),
              "found tp 4, which does not divide num_attention_heads 6");
    check_has(refusal("model: {ffn_hidden_size: 333}\ngrid: {tp: 2}\n"), "found tp 2, which does not divide ffn_hidden_size 333");
    CHECK(refusal("model: {num_key_value_heads: 2}\ngrid: {tp: 4}\n").empty());  // replicated
    CHECK(refusal("model: {num_key_value_heads: 4}\ngrid: {tp: 2}\n").empty());
    check_has(refusal("model: {num_key_value_heads: 4}\ngrid: {tp: 6}\n"),
              "found tp 6 with num_key_value_heads 4, allowed: one divides the other");
}

TEST_CASE_FIXTURE(ConfigFixture, "sequence parallel: parts are whole, ulysses has heads enough") {
    check_has(refusal("model: {seq_length: 30}\ngrid: {sp: 4}\nsequence: {layout: contiguous}\n"),
              "in.yaml:1:21: model.seq_length: found seq_length 30, which is not a multiple of sp 4 = 4");
    check_has(refusal("model: {seq_length: 36}\ngrid: {sp: 4}\n"),
              "found seq_length 36, which is not a multiple of sp 4 x 2 (zigzag) = 8");
    CHECK(refusal("model: {seq_length: 36}\ngrid: {sp: 4}\nsequence: {layout: contiguous}\n").empty());
    check_has(refusal("model: {seq_length: 40}\ngrid: {sp: 4, tp: 2}\ntensor: {sequence_parallel: true}\n"),
              "not a multiple of sp 4 x 2 (zigzag) x tp 2 (tensor.sequence_parallel) = 16");
    const std::string ulysses =
        "model: {hidden_size: 64, num_attention_heads: 8, num_key_value_heads: 2, seq_length: 36}\ngrid: {sp: 4}\nsequence: "
        "{method: ulysses}\n";
    CHECK(load(ulysses).sequence.layout == SequenceLayout::contiguous);
    check_has(refusal("model: {hidden_size: 60, num_attention_heads: 6}\ngrid: {sp: 4}\nsequence: {method: ulysses}\n"),
              "found ulysses with num_attention_heads 6, which are not a multiple of tp 1 x sp 4 = 4; sequence.method=ring has no "
              "such rule");
    check_has(refusal("model: {hidden_size: 64, num_attention_heads: 8}\ngrid: {sp: 4, tp: 4}\nsequence: {method: ulysses}\n"),
              "tp 4 x sp 4 = 16");
    check_has(refusal("sequence: {method: ulysses, layout: zigzag}\n"), "found zigzag with method ulysses");
    CHECK(refusal("sequence: {method: ulysses, layout: contiguous}\n").empty());
}

TEST_CASE_FIXTURE(ConfigFixture, "the pipeline: layers, schedules, chunks") {
    const std::string batch = "train: {micro_batch_size: 1, gradient_accumulation_steps: 4}\n";
    check_has(refusal("model: {num_layers: 3}\ngrid: {pp: 4}\n"),
              "found num_layers 3, allowed: at least pp 4 x virtual_stages 1 = 4");
    CHECK(refusal("model: {num_layers: 5}\ngrid: {pp: 4}\n").empty());
    check_has(refusal("pipeline: {schedule: interleaved}\n"), "found interleaved with virtual_stages 1, allowed: 2 or more");
    CHECK(refusal(batch + "grid: {pp: 2}\npipeline: {schedule: interleaved, virtual_stages: 2}\n").empty());
    check_has(refusal("train: {micro_batch_size: 1, gradient_accumulation_steps: 3}\ngrid: {pp: 2}\npipeline: {schedule: "
                      "interleaved, virtual_stages: 2}\n"),
              "gradient_accumulation_steps 3, which are not a multiple of pp 2");
    check_has(refusal("pipeline: {virtual_stages: 2}\n"), "found virtual_stages 2 with schedule 1f1b, allowed: 1");
    check_has(refusal("pipeline: {schedule: zero-bubble, virtual_stages: 2}\n"),
              "found virtual_stages 2 with schedule zero-bubble");
    CHECK(refusal("grid: {pp: 2}\npipeline: {schedule: gpipe, virtual_stages: 3}\n").empty());
    CHECK(load("grid: {pp: 2}\npipeline: {layers_per_stage: [5, 7]}\n").pipeline.layers_per_stage == std::vector<int>{5, 7});
    CHECK(load("grid: {pp: 2}\n").pipeline.layers_per_stage.empty());
    check_has(refusal("grid: {pp: 2}\npipeline: {layers_per_stage: [5, 6]}\n"),
              "found counts that sum to 11, allowed: num_layers 12");
    check_has(refusal("grid: {pp: 2}\npipeline: {layers_per_stage: [12]}\n"),
              "found 1 counts, allowed: pp 2 x virtual_stages 1 = 2");
    check_has(refusal("grid: {pp: 2}\npipeline: {layers_per_stage: [0, 12]}\n"),
              "found '0', allowed: a list of integers 1 to 100000, or auto");
    check_has(refusal("grid: {pp: 2}\npipeline: {layers_per_stage: 6}\n"), "pipeline.layers_per_stage: found '6'");
}

TEST_CASE_FIXTURE(ConfigFixture, "sharding: shares of dp, and what is kept under a limit that was given") {
    CHECK(load("grid: {dp: 4}\n").sharding.shard_size == 4);
    CHECK(load("grid: {dp: 4}\nsharding: {zero_stage: 3, shard_size: 2, prefetch: 0}\n").sharding ==
          ShardingConfig{.zero_stage = 3, .shard_size = 2, .prefetch = 0, .keep_gathered = false});
    for (const int size : {1, 2, 3, 6})
        CHECK(refusal(fmt::format("grid: {{dp: 6}}\ntrain: {{global_batch_size: 24}}\nsharding: {{shard_size: {}}}\n", size)).empty());
    for (const int size : {4, 5, 12})
        check_has(refusal(fmt::format("grid: {{dp: 6}}\ntrain: {{global_batch_size: 24}}\nsharding: {{shard_size: {}}}\n", size)),
                  fmt::format("sharding.shard_size: found shard_size {}, which does not divide dp 6", size));
    check_has(refusal("sharding: {shard_size: 2}\n"), "found shard_size 2, which does not divide dp 1");
    check_has(refusal("sharding: {shard_size: 0}\n"), "found '0', allowed: an integer 1 to");
    check_has(refusal("sharding: {zero_stage: 4}\n"), "found '4', allowed: an integer 0 to 3");
    check_has(refusal("sharding: {prefetch: -1}\n"), "found '-1', allowed: an integer 0 to");
    CHECK_FALSE(load("sharding: {zero_stage: 3}\n").sharding.keep_gathered);
    CHECK(load("device: {memory_limit: 1GiB}\n").sharding.keep_gathered);
    CHECK(load("sharding: {keep_gathered: true}\n").sharding.keep_gathered);
    CHECK_FALSE(load("sharding: {keep_gathered: false}\ndevice: {memory_limit: 1GiB}\n").sharding.keep_gathered);
    // A limit derived from the machine is none to fill, also when the resolved input is fed back.
    job = {.ranks = 2, .ranks_per_node = 2, .cpus = 4, .cpu_sharers = 2, .memory_available = 1 << 30, .planning = false};
    const Config config = load("sharding: {zero_stage: 3}\ndata: {format: synthetic}\n");
    CHECK(config.device.memory_limit == 1 << 29);
    CHECK_FALSE(config.sharding.keep_gathered);
    CHECK(load(to_yaml(config)) == config);
}

TEST_CASE_FIXTURE(ConfigFixture, "learning rates and their steps") {
    CHECK(load("train: {steps: 70}\n").optimizer.decay_steps == 70);
    CHECK(load("train: {steps: 70}\noptimizer: {lr_schedule: wsd}\n").optimizer.decay_steps == 7);
    CHECK(load("train: {steps: 5}\noptimizer: {lr_schedule: wsd, warmup_steps: 0}\n").optimizer.decay_steps == 1);
    CHECK(load("train: {steps: 20}\noptimizer: {lr_schedule: wsd, warmup_steps: 19}\n").optimizer.decay_steps == 1);
    for (const char* schedule : {"constant", "linear", "cosine", "wsd"})
        for (const int warmup : {0, 1, 4, 20, 21})
            for (const char* least : {"0", "1e-4", "1e-3"}) {
                const std::string text =
                    fmt::format("train: {{steps: 20}}\noptimizer: {{lr: 1e-3, min_lr: {}, warmup_steps: {}, lr_schedule: {}}}\n",
                                least, warmup, schedule);
                INFO(text);
                CHECK(refusal(text).empty());
            }
    check_has(refusal("optimizer: {lr: 1e-3, min_lr: 2e-3, lr_schedule: constant}\n"),
              "found min_lr 0.002, allowed: at most lr 0.001");
    CHECK(load("optimizer: {lr: 1e-5}\n").optimizer.min_lr == doctest::Approx(1e-6));
    CHECK(load("optimizer: {lr: 1e30}\n").optimizer.lr == 1e30);
    check_has(refusal("optimizer: {warmup_steps: 10, decay_steps: 10}\n"), "found decay_steps 10 with warmup_steps 10");
    CHECK(refusal("optimizer: {warmup_steps: 10, decay_steps: 10, lr_schedule: constant}\n").empty());
    check_has(refusal("optimizer: {warmup_steps: 60, decay_steps: 60, lr_schedule: wsd}\n"),
              "found warmup_steps 60 + decay_steps 60, allowed: up to steps 100 for wsd");
    check_has(refusal("train: {gradient_dtype: bf16}\n"), "found gradient_dtype bf16 with precision fp32");
    check_has(refusal("train: {gradient_dtype: bf16, precision: fp16}\n"),
              "found gradient_dtype bf16 with precision fp16, allowed: fp32, or precision bf16");
    check_has(refusal("train: {gradient_dtype: fp16, precision: bf16}\n"),
              "found gradient_dtype fp16 with precision bf16, allowed: fp32, or precision fp16");
    CHECK(load("train: {gradient_dtype: bf16, precision: bf16}\n").train.gradient_dtype == Precision::bf16);
    CHECK(load("train: {gradient_dtype: fp16, precision: fp16}\n").train.gradient_dtype == Precision::fp16);
}

TEST_CASE_FIXTURE(ConfigFixture, "loss scales are powers of two, the first at least the least") {
    const LossScaleConfig s = load("train: {precision: fp16}\n").loss_scale;
    CHECK(s.initial == 65536);
    CHECK(s.window == 1000);
    CHECK(s.minimum == 1);
    CHECK(load("loss_scale: {initial: 1099511627776, window: 1, minimum: 2}\n").loss_scale == LossScaleConfig{0x1p40, 1, 2});
    check_has(refusal("loss_scale: {initial: 65000}\n"), "loss_scale.initial: found 65000, allowed: powers of two, such as 32768 or 65536");
    check_has(refusal("loss_scale: {minimum: 1.5}\n"), "loss_scale.minimum: found 1.5, allowed: powers of two, such as 1 or 2");
    check_has(refusal("loss_scale: {initial: 0.5}\n"), "found '0.5', allowed: a number 1 to 1099511627776");
    check_has(refusal("loss_scale: {initial: 2199023255552}\n"), "allowed: a number 1 to 1099511627776");
    check_has(refusal("loss_scale: {window: 0}\n"), "loss_scale.window: found '0'");
    check_has(refusal("loss_scale: {initial: 2, minimum: 4}\n"), "found initial 2, allowed: at least minimum 4");
}

TEST_CASE_FIXTURE(ConfigFixture, "keys that have no effect are told of, unless they say what holds anyway") {
    const auto told = [&](const std::string& text) {
        std::vector<std::string> warnings;
        load_config(file("t.yaml", "data: {format: synthetic}\n" + text), {}, job, &warnings);
        std::string all;
        for (const std::string& w : warnings) all += w + "; ";
        return all;
    };
    CHECK(told("loss_scale: {window: 10}\n") == "loss_scale has no effect without train.precision fp16; ");
    CHECK(told("loss_scale: {window: 10}\ntrain: {precision: fp16}\n") == "");
    CHECK(told("loss_scale: {initial: 65536, window: 1000, minimum: 1}\n") == "");
    CHECK(told("offload: {nvme_path: /tmp, queue_depth: 8}\n") == "");  // a plan
    CHECK(told("tensor: {sequence_parallel: true}\n") == "tensor.sequence_parallel has no effect at grid.tp 1; ");
    CHECK(told("tensor: {sequence_parallel: true}\ngrid: {tp: 2}\n") == "");
    const std::string keep = "sharding: {keep_gathered: true, zero_stage: ";
    CHECK(told(keep + "2}\n") == "sharding.keep_gathered has no effect below sharding.zero_stage 3 while no parameters are offloaded; ");
    CHECK(told(keep + "3}\n") == "");
    CHECK(told(keep + "0}\noffload: {parameters: cpu}\n") == "");
    CHECK(told(keep + "0}\ndevice: {memory_limit: 1GiB}\n") == "");  // as a resolved input has it
    CHECK(told("optimizer: {type: sgd, beta1: 0.8}\n") == "optimizer.beta1 has no effect with optimizer.type sgd; ");
    CHECK(told("optimizer: {type: sgd, beta2: 0.8, eps: 1e-6}\n") ==
          "optimizer.beta2 has no effect with optimizer.type sgd; optimizer.eps has no effect with optimizer.type sgd; ");
    CHECK(told("optimizer: {type: sgd, beta1: 0.9}\n") == "");
    CHECK(told("optimizer: {beta1: 0.8}\n") == "");
    CHECK(told("model: {rotary_base: 500}\n") == "model.rotary_base has no effect without model.position_embedding rope; ");
    CHECK(told("model: {rotary_base: 500, position_embedding: rope}\n") == "");
    CHECK(told("train: {steps: 6}\noptimizer: {warmup_steps: 100}\n") ==
          "optimizer.warmup_steps 100 are more than train.steps 6: the run ends in its warm-up, at 6 % of lr; ");
    CHECK(told("train: {steps: 6}\n") == "");
    job = {.ranks = 1, .planning = false};
    const std::string nowhere = " has no effect while nothing is offloaded to nvme; ";
    CHECK(told("offload: {nvme_path: /tmp}\n") == "offload.nvme_path" + nowhere);
    CHECK(told("offload: {optimizer: cpu, block_size: 4096, queue_depth: 8}\n") == "offload.block_size" + nowhere + "offload.queue_depth" + nowhere);
    CHECK(told("offload: {optimizer: nvme, nvme_path: /tmp, block_size: 4096, queue_depth: 8}\n") == "");
    CHECK(told("offload: {nvme_path: null, block_size: 1MiB, queue_depth: 32}\n") == "");
}

TEST_CASE_FIXTURE(ConfigFixture, "a split of one part holds nothing out, and says so") {
    std::vector<std::string> warnings;
    load_config(file("t.yaml", "data: {format: synthetic, split: 0.9}\n"), {}, job, &warnings);
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0] == "data.split 0.9 is one weight, so all of the data is for training; \"90,10\" holds a tenth of it out");
    load_config(file("t.yaml", "data: {format: synthetic, split: \"90,10\"}\n"), {}, job, &warnings);
    CHECK(warnings.size() == 1);
}

TEST_CASE_FIXTURE(ConfigFixture, "gradients in the nvme tier are one problem, with or without a path") {
    CHECK(lines(refusal("offload: {gradients: nvme}\n")) == 1);
    CHECK(lines(refusal("offload: {gradients: nvme, nvme_path: /tmp}\n")) == 1);
    CHECK(lines(refusal("offload: {gradients: nvme, activations: nvme}\n")) == 2);
}

TEST_CASE_FIXTURE(ConfigFixture, "threads and memory come from the machine") {
    const std::string text = "data: {format: synthetic}\n";
    std::vector<std::string> warnings;
    job = {.ranks = 4, .ranks_per_node = 4, .cpus = 10, .cpu_sharers = 4, .memory_available = std::int64_t{8} << 30, .planning = false};
    const Config c = load(text);
    CHECK(c.device.threads == 2);
    CHECK(c.device.memory_limit == std::int64_t{2} << 30);
    CHECK(c.device.host_memory_limit == 0);
    CHECK(load(text + "device: {host_memory_limit: 512MiB}\n").device.memory_limit == std::int64_t{1536} << 20);
    CHECK(load(text + "device: {memory_limit: 1TiB}\n").device.memory_limit == std::int64_t{1} << 40);
    check_has(refusal(text + "device: {host_memory_limit: 1GiB, memory_limit: 1.5GiB}\n"),
              "memory_limit 1536MiB + host_memory_limit 1GiB are more than the 2GiB that the node has for each of 4 ranks");
    load_config(file("t.yaml", text + "device: {threads: 4}\n"), {}, job, &warnings);
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0] == "4 ranks x device.threads 4 = 16 but they share 10 CPUs");
    job.cpus = 2;
    warnings.clear();
    CHECK(load_config(file("t.yaml", text), {}, job, &warnings).device.threads == 1);
    CHECK(warnings.size() == 1);
    // Ranks bound to CPUs of their own share nothing but the memory.
    job.cpus = 8;
    job.cpu_sharers = 1;
    warnings.clear();
    CHECK(load_config(file("t.yaml", text), {}, job, &warnings).device.threads == 8);
    CHECK(load_config(file("t.yaml", text), {}, job, &warnings).device.memory_limit == std::int64_t{2} << 30);
    CHECK(warnings.empty());
    load_config(file("t.yaml", text + "device: {threads: 9}\n"), {}, job, &warnings);
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0] == "1 rank x device.threads 9 = 9 but it has 8 CPUs");
    job.planning = true;
    CHECK(load(text).device.memory_limit == 0);
    CHECK(load(text + "device: {memory_limit: 3GiB}\n").device.memory_limit == std::int64_t{3} << 30);
}

TEST_CASE_FIXTURE(ConfigFixture, "documents, splits and evaluation") {
    const std::string data = "data: {format: synthetic, ";
    CHECK(load(data + "end_of_document: 50256, mask_across_documents: true}\n").data.end_of_document == 50256);
    CHECK_FALSE(load(data + "end_of_document: null}\n").data.end_of_document.has_value());
    check_has(refusal(data + "end_of_document: 50257}\n"), "found 50257, allowed: a token id below vocab_size 50257");
    check_has(refusal(data + "end_of_document: -1}\n"), "found '-1', allowed: an integer 0 to 2147483647, or null");
    check_has(refusal(data + "mask_across_documents: true}\n"), "found true without data.end_of_document");
    const std::string mask = "data: {mask_across_documents: true, train: ";
    check_has(refusal(mask + "[a.txt]}\n"), "found true without data.end_of_document, but a text of one file is one document");
    check_has(refusal("data: {train: [a.txt]}\n", {"data.mask_across_documents=true"}), "a text of one file is one document");
    for (const char* many : {"[a.txt, b.txt]}\n", "[\"*.none\"]}\n", "[a.txt], end_of_document: 10}\n"}) CHECK(refusal(mask + many) == "");
    CHECK(load("data: {split: \"969,30,1\"}\n").data.split == std::vector<double>{969, 30, 1});
    CHECK(load("data: {split: 969, valid: []}\n").data.split == std::vector<double>{969});
    CHECK(load("data:\n  split: 969,30, 1\n").data.split == std::vector<double>{969, 30, 1});
    CHECK(load("data: {split: [0.9, 0.1]}\n").data.split == std::vector<double>{0.9, 0.1});
    for (const char* split : {"\"\"", "\"1,2,3,4\"", "\"0,1\"", "\"a,b\"", "\"1,,2\"", "\"-1,2\"", "{}", "\"1,nan\""})
        check_has(refusal(fmt::format("data: {{split: {}}}\n", split)), "data.split");
    check_has(refusal("data: {split: \"9,1\", valid: [x]}\n"), "found a split beside data.valid");
    check_has(refusal("evaluation: {interval: 5}\n"), "evaluation.interval: found 5, but nothing is held out");
    check_has(refusal("evaluation: {interval: 5}\ndata: {split: \"1\"}\n"), "nothing is held out");
    CHECK(refusal("evaluation: {interval: 5}\ndata: {split: \"9,1\"}\n").empty());
    CHECK(refusal("evaluation: {interval: 5}\ndata: {valid: [x]}\n").empty());
    CHECK(refusal("evaluation: {interval: 5}\ndata: {format: synthetic}\n").empty());
}
