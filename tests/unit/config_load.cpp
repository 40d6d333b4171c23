#include "config_fixture.hpp"

#include "config/names.hpp"

using namespace quadrille;

TEST_CASE_FIXTURE(ConfigFixture, "unknown, misplaced, duplicate, ill-typed and impossible are all reported in one pass") {
    const std::string text = refusal(
        "model:\n"
        "  num_layers: four\n"                    // 2 wrong type
        "  hiden_size: 64\n"                      // 3 misspelt
        "  lr: 1e-3\n"                            // 4 misplaced
        "  num_attention_heads: 6\n"              // 5
        "  num_attention_heads: 6\n"              // 6 duplicate
        "grid: {tp: 4}\n"                         // 7 does not divide 6 heads
        "zero_optimization:\n"                    // 8 another's section
        "  stage: 2\n"                            // 9
        "optimizer: {lr: 1e-3, min_lr: 2e-3}\n",  // 10 min above lr
        {"grid.pp=x", "train.stps=3"});
    INFO(text);
    check_has(text, "in.yaml:2:15: model.num_layers: found 'four', which is not a number, allowed: an integer 1 to 100000");
    check_has(text, "in.yaml:3:3: model.hiden_size: found an unknown key; did you mean model.hidden_size? Allowed in model: num_layers,");
    check_has(text, "in.yaml:4:3: model.lr: found an unknown key");
    check_has(text, "it belongs elsewhere: optimizer.lr. Allowed in model: num_layers,");
    check_has(text, "in.yaml:6:3: model.num_attention_heads: found the key twice, allowed: once; the first is at in.yaml:5:3");
    check_has(text, "in.yaml:7:12: grid.tp: found tp 4, which does not divide num_attention_heads 6");
    check_has(text, "in.yaml:8:1: zero_optimization: found an unknown section");
    check_has(text, "in.yaml:9:3: zero_optimization.stage: found an unknown key; did you mean sharding.zero_stage?");
    check_has(text, "in.yaml:10:31: optimizer.min_lr: found min_lr 0.002, allowed: at most lr 0.001");
    check_has(text, "override 1 'grid.pp=x': grid.pp: found 'x', which is not a number");
    check_has(text, "override 2 'train.stps=3': train.stps: found an unknown key");
    CHECK(text.find("in.yaml:2:") < text.find("in.yaml:10:"));
    CHECK(text.find("in.yaml:10:") < text.find("override 1"));
    CHECK(lines(text) == 10);
}

TEST_CASE_FIXTURE(ConfigFixture, "what follows only from a broken value is not blamed on its default") {
    CHECK(lines(refusal("model: {num_attention_heads: twelve}\ngrid: {tp: 5}\n")) ==
          2);  // tp 5 against ffn 3072, not against heads
    CHECK(lines(refusal("train: {micro_batch_size: x, global_batch_size: 7}\n")) == 1);
    CHECK(lines(refusal("model: {num_layers: 4\n", {"grid.tp=-3"})) == 2);
}

TEST_CASE_FIXTURE(ConfigFixture, "overrides: the file's rules, the file's place") {
    const std::string base = "model: {num_layers: 4}\ntrain: {steps: 7}\n";
    CHECK(load(base, {"train.steps=9"}).train.steps == 9);
    CHECK(load(base, {"train.steps=1e2", "model.bias=false", "comm.bucket_size=1KiB"}).comm.bucket_size == 1024);
    CHECK(load(base, {"pipeline.layers_per_stage=[4]"}).pipeline.layers_per_stage == std::vector<int>{4});
    CHECK(load(base, {"comm.compression={method: none}"}).model.num_layers == 4);
    CHECK(load(base, {"output.directory=a=b"}).output.directory == "a=b");
    CHECK(load(base, {"model.head_dim=auto"}).model.head_dim == 64);
    check_has(refusal(base, {"train.steps=1", "train.steps=2"}),
              "override 2 'train.steps=2': train.steps: found the key twice, allowed: once; the first is override 1");
    check_has(refusal(base, {"steps=3"}),
              "override 1 'steps=3': an override is written section.key=value; it belongs elsewhere: train.steps");
    check_has(refusal(base, {"--tensor-model-parallel-size=2"}), "did you mean grid.tp?");
    check_has(refusal(base, {"train.steps"}), "section.key=value");
    check_has(refusal(base, {""}), "section.key=value");
    check_has(refusal(base, {"="}), "section.key=value");
    check_has(refusal(base, {"..=1"}), "section.key=value");
    check_has(refusal(base, {"a..b=1"}), "override 1 'a..b=1'");
    check_has(refusal(base, {"train.steps="}), "override 1 'train.steps=': ");
    check_has(refusal(base, {"train.steps=[1"}), "override 1 'train.steps=[1': ");
    check_has(refusal(base, {"train.steps=0"}), "train.steps: found '0', allowed: an integer 1 to 1e12");
    check_has(refusal(base, {"zero_optimization.stage=1"}), "did you mean sharding.zero_stage?");
    check_has(refusal(base, {"comm.compression=3"}), "comm.compression: found '3', allowed: a mapping of method, ratio");
    check_has(refusal("train: {steps: many}\n", {"train.steps=9"}), "in.yaml:1:16: train.steps: found 'many'");
}

TEST_CASE_FIXTURE(ConfigFixture, "a section given a value: its key that takes the value") {
    const auto told = [&](const std::string& override) { return refusal("model: {num_layers: 4}\n", {override}); };
    check_has(told("recompute=full"), "section.key=value; recompute is a section: recompute.granularity=full");
    check_has(told("offload=cpu"), "; offload is a section: offload.optimizer=cpu");
    check_has(told("data=[a.txt]"), "; data is a section: data.train=[a.txt]");
    check_has(told("device=gpu"), "; device is a section of backend, memory_limit, host_memory_limit, threads");
    check_has(told("model=llama"), "; model is a section of num_layers, hidden_size,");
    check_has(told("recompute"), "; recompute is a section of granularity");
    check_has(told("recompute={a: 1}"), "; recompute is a section of granularity");
}

TEST_CASE_FIXTURE(ConfigFixture, "what a shell makes of a list or a mapping is told with the quotes that it wants") {
    const auto told = [&](const std::string& override) { return refusal("model: {num_layers: 4}\n", {override}); };
    check_has(told("data.train=[*.txt]"), "the referenced anchor is not defined; a word that begins with * stands in quotes: [\"*.txt\"]");
    check_has(refusal("data: {train: [*.txt]}\n"), "in.yaml:1:16: not YAML: the referenced anchor is not defined; a word that begins with *");
    for (const char* part : {"model.lora={rank:", "pipeline.layers_per_stage=[1,"})
        check_has(told(part), "has no end: put the whole override in quotes, since a shell parts it at blanks");
    CHECK(!has(told("model.lora={rank: x}"), "quotes"));
    CHECK(!has(refusal("model: {num_layers: 4\n"), "quotes"));
}

TEST_CASE_FIXTURE(ConfigFixture, "of the keys of a rule an override is blamed, for it is new") {
    const std::string base = "model:\n  seq_length: 64\ngrid: {sp: 2}\n";
    check_has(refusal(base, {"grid.sp=3"}), "override 1 'grid.sp=3': grid.sp: found seq_length 64, which is not a multiple of sp 3 x 2 (zigzag) = 6");
    check_has(refusal(base, {"train.steps=3", "model.seq_length=62"}), "override 2 'model.seq_length=62': model.seq_length: found seq_length 62");
    check_has(refusal("model:\n  seq_length: 62\ngrid: {sp: 2}\n"), "in.yaml:2:15: model.seq_length: found seq_length 62");
}

TEST_CASE_FIXTURE(ConfigFixture, "booleans, and words that only look like something else") {
    for (const char* word : {"true", "True", "TRUE", "\"true\""})
        CHECK(load(fmt::format("comm: {{overlap: {}}}\n", word)).comm.overlap);
    for (const char* word : {"false", "False", "FALSE"})
        CHECK_FALSE(load(fmt::format("comm: {{overlap: {}}}\n", word)).comm.overlap);
    check_has(refusal("comm: {overlap: yes}\n"), "comm.overlap: found 'yes', allowed: true | false; did you mean true?");
    check_has(refusal("comm: {overlap: off}\n"), "did you mean false?");
    for (const char* word : {"1", "null", "~", "", "tRUE", "[true]"})
        check_has(refusal(fmt::format("comm: {{overlap: {}}}\n", word)), "comm.overlap");
    // Text keys keep the text.
    for (const char* word :
         {"no", "off", "on", "yes", "null", "1.0", "1e3", "2024-05-20", "true", "0x10", "010", "01:30:00", "a b", "NaN"}) {
        INFO(word);
        CHECK(load(fmt::format("output:\n  directory: {}\n", word)).output.directory == word);
        const auto data = load(fmt::format("data: {{train: [{}]}}\n", word)).data.train;
        REQUIRE(data.size() == 1);
        CHECK(data[0] == (folder / word).string());
    }
    check_has(refusal("output: {directory: \"\"}\n"), "output.directory: found an empty text");
    check_has(refusal("output: {directory: }\n"), "output.directory: found nothing");
    // Three states, one of them a path: what only looks like a word is refused, and a path of that name is written ./no.
    for (const char* word : {"no", "off", "false", "null", "~", "None", "nome"})
        check_has(refusal(fmt::format("checkpoint: {{resume: {}}}\n", word)),
                  fmt::format("checkpoint.resume: found '{}', allowed: auto | none | a path; did you mean none?", word));
    for (const char* word : {"yes", "on", "true", "latest", "Auto"})
        check_has(refusal(fmt::format("checkpoint: {{resume: {}}}\n", word)), "; did you mean auto?");
    for (const char* word : {"", "[a]", "{a: b}"}) check_has(refusal(fmt::format("checkpoint: {{resume: {}}}\n", word)), "checkpoint.resume");
    check_has(refusal("checkpoint: {resume: ~/runs}\n"), "checkpoint.resume: found '~/runs', allowed: a path as it is; ~ and $NAME are not expanded");
    for (const char* word : {"none", "auto", "./no", "runs/x", "step-00000100", "2024", "/a b/c"})
        CHECK(load(fmt::format("checkpoint: {{resume: {}}}\n", word)).checkpoint.resume == word);
}

TEST_CASE_FIXTURE(ConfigFixture, "checkpoints: their folder follows the output's, hints are names and texts") {
    CHECK(load("output: {directory: out}\n").checkpoint.directory == "out/checkpoints");
    CHECK(load("checkpoint: {directory: there}\n").checkpoint.directory == "there");
    check_has(refusal("checkpoint: {directory: $SCRATCH/x}\n"), "checkpoint.directory: found '$SCRATCH/x', allowed: a path as it is");
    using Hints = std::map<std::string, std::string>;
    const Config c = load("checkpoint: {hints: {romio_ds_write: disable, cb_nodes: 4, romio_cb_write: \"no\"}}\ntrain: {time_limit: 1.5e3}\n");
    CHECK(c.checkpoint.hints == Hints{{"cb_nodes", "4"}, {"romio_cb_write", "no"}, {"romio_ds_write", "disable"}});
    CHECK(c.train.time_limit == 1500);
    CHECK(load("checkpoint: {hints: {a: b}}\n", {"checkpoint.hints={c: d}"}).checkpoint.hints == Hints{{"c", "d"}});
    CHECK(load("checkpoint: {hints: {a: b}}\n", {"checkpoint.hints.c=d"}).checkpoint.hints == Hints{{"c", "d"}});
    check_has(refusal("checkpoint: {hints: x}\n"), "checkpoint.hints: found 'x', allowed: a mapping of names to texts");
    check_has(refusal("checkpoint: {hints: {a: [1]}}\n"), "checkpoint.hints: found a list of 1, for 'a', allowed");
    check_has(refusal("checkpoint: {hints: {a: }}\n"), "checkpoint.hints: found nothing, for 'a', allowed");
    check_has(refusal("checkpoint: {hints: {a: 1, a: 2}}\n"), "checkpoint.hints: found a mapping, in which 'a' stands twice");
    check_has(refusal("checkpoint: {interval: -1}\n"), "checkpoint.interval: found '-1', allowed: an integer 0 to 1e12");
    check_has(refusal("train: {time_limit: 0}\n"), "train.time_limit: found '0', allowed: a number above 0");
    check_has(refusal("train: {time_limit: 01:30:00}\n"), "which looks like a time");
}

TEST_CASE_FIXTURE(ConfigFixture, "numbers in every habit") {
    const Config c =
        load("train: {steps: 5e3, seed: \"77\"}\noptimizer: {lr: \"1e-4\", min_lr: 6.0e-6, eps: 1E-6}\ncomm: {bucket_size: 2e6}\n");
    CHECK(c.train.steps == 5000);
    CHECK(c.train.seed == 77);
    CHECK(c.optimizer.lr == 1e-4);
    CHECK(c.optimizer.min_lr == 6e-6);
    CHECK(c.comm.bucket_size == 2000000);
    check_has(refusal("train: {steps: 010}\n"), "found '010', which has a leading zero");
    check_has(refusal("train: {steps: 0x10}\n"), "found '0x10', which is not decimal");
    check_has(refusal("train: {steps: 1_000}\n"), "which has digit separators");
    check_has(refusal("train: {steps: 01:30:00}\n"), "which looks like a time");
    check_has(refusal("train: {steps: 1.5}\n"), "which is not whole");
    check_has(refusal("train: {steps: -1}\n"), "found '-1', allowed: an integer 1 to 1e12");
    check_has(refusal("train: {steps: 1e30}\n"), "which is more than 64 bits hold");
    check_has(refusal("optimizer: {lr: .nan}\n"), "found '.nan', which is not finite, allowed: a number 0 to 1e38");
    check_has(refusal("optimizer: {lr: -.inf}\n"), "which is not finite");
    check_has(refusal("optimizer: {beta1: 1}\n"), "found '1', allowed: a number at least 0, below 1");
    check_has(refusal("optimizer: {eps: 0}\n"), "found '0', allowed: a number 1e-37 to 1e38");
    check_has(refusal("model: {norm_eps: 1e-300}\n"), "found '1e-300', allowed: a number 1e-37 to 1");
    check_has(refusal("train: {clip_grad: -1}\n"), "train.clip_grad: found '-1'");
    CHECK(load("train: {clip_grad: 0}\n").train.clip_grad == 0);
    check_has(refusal("comm: {bucket_size: 25MB}\n"), "whose unit is not known; the units are KiB, MiB, GiB and TiB");
    check_has(refusal("train: {steps: 1KiB}\n"), "this is not a number of bytes");
    check_has(refusal("grid: {dp: -1}\n"), "or auto; write auto for what is left over");
    check_has(refusal("train: {global_batch_size: [1]}\n"), "train.global_batch_size: found a list of 1");
    check_has(refusal("model: {hidden_dropout: {}}\n"), "model.hidden_dropout: found a mapping");
    check_has(refusal("train: {steps: auto}\n"), "found 'auto', which is not a number");
}

TEST_CASE_FIXTURE(ConfigFixture, "keys and values of later parts are refused as not in this build, their defaults are not") {
    CHECK(refusal("sharding: {zero_stage: 0, shard_size: auto, prefetch: 1}\nrecompute: {granularity: none}\n"
                  "offload: {optimizer: none, parameters: none, gradients: none, activations: none, nvme_path: null, block_size: "
                  "1MiB, queue_depth: 32}\n"
                  "comm: {backend: auto, algorithm: auto, check: false, compression: {method: none, ratio: 0.01, bits: 4, "
                  "error_feedback: true, exclude: [embedding, head]}, staleness: 0, watchdog: 300}\n"
                  "train: {deterministic: run, time_limit: null}\n"
                  "checkpoint: {directory: auto, interval: 0, hints: {}, keep: 2, resume: auto, asynchronous: false}\n"
                  "model: {lora: null}\ngrid: {pretend_nodes: 0}\ndevice: {backend: cpu}\n")
              .empty());
    CHECK(refusal("offload: {block_size: 1048576}\nsharding: {shard_size: 1}\ncomm: {backend: mpi, algorithm: ring}\n").empty());
    CHECK(load("model: {}\n").comm.algorithm == CollectiveAlgorithm::automatic);
    const Config open = load("comm: {bucket_size: auto}\ngrid: {order: auto}\n");  // what only the machine can tell
    CHECK(open.comm.bucket_size == 0);
    CHECK(open.grid.order.empty());
    const Config given = load("comm: {bucket_size: auto}\ngrid: {order: auto}\n", {"comm.bucket_size=7", "grid.order=pp-tp-sp-dp"});
    CHECK(given.comm.bucket_size == 7);
    CHECK(given.grid.order.front() == "pp");
    CHECK(load("grid: {order: pp-tp-sp-dp}\n", {"grid.order=auto"}).grid.order.empty());
    CHECK(load("comm: {algorithm: native}\n").comm.algorithm == CollectiveAlgorithm::native);
    for (const char* text : {"comm: {backend: nccl}",
                             "train: {deterministic: grid}",
                             "device: {backend: cuda}"}) {
        const std::string answer = refusal(text);
        INFO(text);
        check_has(answer, "not in this build");
        CHECK(lines(answer) == 1);
    }
    // What is no value at all is said so.
    check_has(refusal("sharding: {zero_stage: two}\n"), "found 'two', which is not a number");
    check_has(refusal("comm: {algorithm: rings}\n"), "found 'rings', allowed: auto | ring | shared | hierarchical | native; did you mean ring?");
    check_has(refusal("recompute: {granularity: half}\n"), "found 'half', allowed: none | selective | full");
}

TEST_CASE_FIXTURE(ConfigFixture, "choices are spelt as documented") {
    CHECK(load("pipeline: {schedule: zero-bubble}\n").pipeline.schedule == Schedule::zero_bubble);
    CHECK(load("pipeline: {schedule: gpipe}\n").pipeline.schedule == Schedule::gpipe);
    CHECK(load("pipeline: {schedule: 1f1b}\n").pipeline.schedule == Schedule::one_f_one_b);
    CHECK(load("recompute: {granularity: selective}\n").recompute.granularity == Granularity::selective);
    CHECK(load("recompute: {granularity: full}\n").recompute.granularity == Granularity::full);
    CHECK(spelling(Schedule::zero_bubble) == "zero-bubble");
    CHECK(spelling(TokenType::uint32) == "uint32");
    CHECK(load("grid: {order: pp-dp-sp-tp}\n").grid.order == std::vector<std::string>{"pp", "dp", "sp", "tp"});
    for (const char* order : {"tp-sp-dp", "tp-tp-dp-pp", "tp sp dp pp", "", "tp-sp-dp-pp-"})
        check_has(refusal(fmt::format("grid: {{order: \"{}\"}}\n", order)), "grid.order");
    check_has(refusal("pipeline: {schedule: 1F1B}\n"), "did you mean 1f1b?");
}

TEST_CASE_FIXTURE(ConfigFixture, "names of other trainers are hints, never keys") {
    const std::string hf = refusal(
        "{\"architectures\": [\"LlamaForCausalLM\"], \"num_hidden_layers\": 2, \"rms_norm_eps\": 1e-5, \"torch_dtype\": "
        "\"bfloat16\"}");
    CHECK(lines(hf) == 4);
    check_has(hf, "did you mean model.num_layers?");
    check_has(hf, "did you mean train.precision?");
    const std::string ds = refusal(
        "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}, "
        "\"optimizer\": {\"params\": {\"betas\": [0.9, 0.95]}}}");
    check_has(ds, "train_batch_size: found an unknown key");
    check_has(ds, "zero_optimization.stage: found an unknown key; did you mean sharding.zero_stage?");
    check_has(ds, "zero_optimization.offload_optimizer.device: found an unknown key; did you mean offload.optimizer?");
    check_has(ds, "optimizer.params.betas: found an unknown key; did you mean optimizer.beta1? (and optimizer.beta2)");
    check_has(refusal("model.num_layers: 4\n"), "model.num_layers: found an unknown key");
    check_has(refusal("model: 5\n"), "in.yaml:1:8: model: found '5', allowed: a mapping of num_layers, hidden_size");
    check_has(refusal("model: [1]\n"), "model: found a list of 1, allowed: a mapping");
    // One setting under two names is two problems of one kind, whether they agree or not.
    check_has(refusal("grid: {tp: 2, tensor_model_parallel_size: 2}\n"), "grid.tensor_model_parallel_size: found an unknown key");
}
