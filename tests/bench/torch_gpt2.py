"""GPT-2 as PyTorch trains it best on a CPU: the other side of run.py's comparison. Needs torch; started by torch_side.py.

One argument, JSON: model (the sizes), batch, precision (fp32, or bf16 by autocast), threads. Scaled-dot-product attention, one product
for q, k and v, fused AdamW, clipping by the global norm. It tries eager and compiled on all the threads and eager on one, keeps the
fastest, and then makes as many counted steps as each line of its standard input says. Answers are JSON, one a line.
"""
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, hidden, heads, inner):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.o = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.down(functional.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden, heads, inner = model["hidden_size"], model["num_attention_heads"], model["ffn_hidden_size"]
        self.tokens, self.positions = nn.Embedding(model["vocab_size"], hidden), nn.Embedding(model["seq_length"], hidden)
        self.blocks = nn.Sequential(*(Block(hidden, heads, inner) for _ in range(model["num_layers"])))
        self.norm = nn.LayerNorm(hidden)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.blocks(self.tokens(tokens) + self.positions.weight)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Training:
    """A model with its optimizer, and its step under one setting."""

    def __init__(self, arguments):
        torch.manual_seed(1)
        self.model = Gpt2(arguments["model"])
        matrices = [p for p in self.model.parameters() if p.dim() == 2]
        vectors = [p for p in self.model.parameters() if p.dim() == 1]
        self.optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], lr=1e-4,
                                           betas=(0.9, 0.95), fused=True)
        self.shape = (arguments["batch"], arguments["model"]["seq_length"] + 1)
        self.vocabulary = arguments["model"]["vocab_size"]
        self.bf16 = arguments["precision"] == "bf16"
        self.forward = self.model

    def step(self):
        data = torch.randint(self.vocabulary, self.shape)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            loss = self.forward(data[:, :-1], data[:, 1:])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()

    def tokens_per_second(self, steps):
        self.step()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        return steps * self.shape[0] * (self.shape[1] - 1) / (time.perf_counter() - begin)

    def use(self, setting):
        """A setting is "compiled" or "eager", and a number of threads."""
        how, threads = setting
        torch.set_num_threads(threads)
        self.forward = torch.compile(self.model) if how == "compiled" else self.model


def main():
    arguments = json.loads(sys.argv[1])
    training = Training(arguments)
    tried = {}
    for setting in dict.fromkeys([("eager", arguments["threads"]), ("compiled", arguments["threads"]), ("eager", 1)]):
        try:
            training.use(setting)
            tried[setting] = training.tokens_per_second(1)
        except Exception as error:  # torch.compile wants a compiler and headers, and fails in its own ways
            print(f"torch_gpt2.py: {setting[0]} does not work here: {str(error).splitlines()[0]}", file=sys.stderr)
    best = max(tried, key=tried.get)
    training.use(best)
    names = {setting: f"{setting[0]}, {setting[1]} thread{'s' if setting[1] > 1 else ''}" for setting in tried}
    rates = {names[setting]: rate for setting, rate in tried.items()}
    print(json.dumps({"version": torch.__version__, "chosen": names[best], "tried": rates}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"tokens_per_second": training.tokens_per_second(int(line))}), flush=True)


if __name__ == "__main__":
    main()
