"""Makes the stored numbers of this folder with PyTorch, which nothing else here needs.

    python make_reference.py           # tokens.u16, and MODEL.reference and MODEL.gradients for gpt2 and llama
    python make_reference.py --noise   # prints how far float32 is from float64, and writes nothing

Owns an implementation of both micro models and of their training that shares no code and no structure with src/: torch.nn
modules, torch's attention, AdamW and gradient clipping, the whole global batch in one pass. What it must share is the input (the
YAML files beside it) and the first weights: the deviates of src/base/random.hpp, written again in numpy. Needs torch, numpy, PyYAML.

MODEL.reference is text: a line "step NUMBER LOSS NORM" per step (the mean over counted tokens, the gradient's norm before clipping),
then a line "parameter NAME ELEMENTS" per parameter. MODEL.gradients holds, little-endian float32 in row-major order, the gradients
of all parameters in the order of those lines before clipping: those of the first step, then those of the last.
"""
import argparse
import math
import pathlib

import numpy
import torch
import yaml
from torch import nn
from torch.nn import functional

FOLDER = pathlib.Path(__file__).parent
MODELS = ("gpt2", "llama")

# ---- the corpus -----------------------------------------------------------------------------------------------------------


def make_tokens(count=24 * 40 + 1, ids=131, end_of_document=7):
    """Documents of 3 to 24 tokens in which the next token is nearly determined by the last; 24 samples, so 10 steps are 3 epochs."""
    state, tokens, left = 12345, [], 0
    while len(tokens) < count:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        draw = state >> 40
        if left == 0:
            tokens.append(end_of_document)
            left = 3 + draw % 22
        elif draw % 4 == 0:
            tokens.append(draw // 4 % ids)
        else:
            tokens.append((tokens[-1] * 5 + 3) % ids)
        left -= 1
    return numpy.array(tokens, dtype="<u2")


# ---- first weights: src/base/random.hpp -------------------------------------------------------------------------------------

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z):
    """splitmix64's finalizer, of a python int or of a uint64 array."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def hash_text(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return mix(h)


def random_key(*parts):
    key = 0x51AD2111E5EED5
    for part in parts:
        key = mix(((key ^ part) + GOLDEN) & MASK)
    return key


def normal(key, count):
    """Standard normal deviates of elements 0 .. count - 1 (Box-Muller)."""
    element = numpy.arange(2 * count, dtype=object)
    bits = numpy.array([mix((key + int(e) * GOLDEN) & MASK) >> 11 for e in element], dtype=numpy.float64)
    u, v = (bits[0::2] + 1.0) * 2.0**-53, bits[1::2] * 2.0**-53
    return numpy.sqrt(-2.0 * numpy.log(u)) * numpy.cos(2.0 * math.pi * v)


def first_weights(model, shape, seed):
    """Fills the parameters: matrices and tables normal, norms one, biases zero."""
    deviation = float(shape["init_std"])
    for name, parameter in model.named_parameters():
        if "norm" in name:
            value = numpy.full(parameter.numel(), 1.0 if name.endswith("weight") else 0.0)
        elif name.endswith("bias"):
            value = numpy.zeros(parameter.numel())
        else:
            inner = name.endswith((".o.weight", ".down.weight"))  # those that write into the residual stream
            scale = deviation / math.sqrt(2.0 * shape["num_layers"]) if inner else deviation
            value = scale * normal(random_key(seed, hash_text(name)), parameter.numel())
        value = torch.from_numpy(value.astype(numpy.float32).reshape(parameter.shape))
        with torch.no_grad():
            parameter.copy_(value)


# ---- the models -------------------------------------------------------------------------------------------------------------


def norm(shape):
    make = nn.LayerNorm if shape["normalization"] == "layernorm" else nn.RMSNorm
    return make(shape["hidden_size"], eps=float(shape["norm_eps"]))


def rotate(x, base):
    """Rotary positions, halves of a head paired as in Llama; x is [batch, head, position, head_dim]."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * base ** (-torch.arange(half, dtype=torch.float64) / half)
    cosine, sine = torch.cos(angle).repeat(1, 2).to(x.dtype), torch.sin(angle).repeat(1, 2).to(x.dtype)
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cosine + turned * sine


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        hidden, bias = shape["hidden_size"], shape["bias"]
        self.heads = shape["num_attention_heads"]
        self.groups = shape.get("num_key_value_heads", self.heads)
        self.width = shape.get("head_dim", hidden // self.heads)
        self.base = float(shape["rotary_base"]) if shape["position_embedding"] == "rope" else None
        self.q = nn.Linear(hidden, self.heads * self.width, bias=bias)
        self.k = nn.Linear(hidden, self.groups * self.width, bias=bias)
        self.v = nn.Linear(hidden, self.groups * self.width, bias=bias)
        self.o = nn.Linear(self.heads * self.width, hidden, bias=bias)

    def forward(self, x, seen):
        batch, length, _ = x.shape
        q, k, v = (layer(x).view(batch, length, -1, self.width).transpose(1, 2) for layer in (self.q, self.k, self.v))
        if self.base:
            q, k = rotate(q, self.base), rotate(k, self.base)
        k, v = (y.repeat_interleave(self.heads // self.groups, dim=1) for y in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None])
        return self.o(y.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, shape):
        super().__init__()
        hidden, inner, bias = shape["hidden_size"], shape["ffn_hidden_size"], shape["bias"]
        self.gate = nn.Linear(hidden, inner, bias=bias) if shape["activation"] == "swiglu" else None
        self.up = nn.Linear(hidden, inner, bias=bias)
        self.down = nn.Linear(inner, hidden, bias=bias)

    def forward(self, x):
        if self.gate:
            return self.down(functional.silu(self.gate(x)) * self.up(x))
        return self.down(functional.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.attention_norm, self.attention = norm(shape), Attention(shape)
        self.mlp_norm, self.mlp = norm(shape), Mlp(shape)

    def forward(self, x, seen):
        x = x + self.attention(self.attention_norm(x), seen)
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.embedding = nn.Embedding(shape["vocab_size"], shape["hidden_size"])
        learned = shape["position_embedding"] == "learned"
        self.position_embedding = nn.Embedding(shape["seq_length"], shape["hidden_size"]) if learned else None
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape["num_layers"]))
        self.final_norm = norm(shape)
        self.head = None if shape["tie_word_embeddings"] else nn.Linear(shape["hidden_size"], shape["vocab_size"], bias=False)

    def forward(self, tokens, seen):
        x = self.embedding(tokens)
        if self.position_embedding:
            x = x + self.position_embedding.weight
        for layer in self.layers:
            x = layer(x, seen)
        return functional.linear(self.final_norm(x), (self.head or self.embedding).weight)


# ---- training -----------------------------------------------------------------------------------------------------------------


def batch(tokens, data, train, length, step):
    """Inputs, targets, which targets count, and who sees whom, of the global batch of a step (from 0)."""
    size, samples = train["global_batch_size"], (len(tokens) - 1) // length
    places = [(step * size + i) % samples * length for i in range(size)]
    rows = torch.stack([torch.from_numpy(tokens[p:p + length + 1].astype(numpy.int64)) for p in places])
    inputs, targets = rows[:, :-1], rows[:, 1:]
    seen = torch.ones(length, length, dtype=torch.bool).tril().expand(size, -1, -1)
    counts = torch.ones(size, length)
    if data.get("mask_across_documents"):
        ends = inputs == data["end_of_document"]  # the token belongs to the document that it ends
        document = ends.cumsum(dim=1) - ends.long()
        seen = seen & (document[:, :, None] == document[:, None, :])
        counts = 1.0 - ends.float()               # what follows it begins another document
    return inputs, targets, counts, seen


def learning_rate(optimizer, step):
    """Of a step from 1: linear warm-up, then half a cosine down to min_lr."""
    peak, floor, warmup = float(optimizer["lr"]), float(optimizer["min_lr"]), optimizer["warmup_steps"]
    if step <= warmup:
        return peak * step / warmup
    way = min((step - warmup) / (optimizer["decay_steps"] - warmup), 1.0)
    return floor + 0.5 * (peak - floor) * (1.0 + math.cos(math.pi * way))


def train_model(config, tokens, dtype):
    """Losses and norms of all steps, and the gradients {name: array} of the first and the last."""
    shape, train, optimizer = config["model"], config["train"], config["optimizer"]
    model = Transformer(shape)
    first_weights(model, shape, train["seed"])
    model.to(dtype)
    decaying = {"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": float(optimizer["weight_decay"])}
    others = {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}
    adamw = torch.optim.AdamW([decaying, others], betas=(optimizer["beta1"], optimizer["beta2"]), eps=float(optimizer["eps"]))
    losses, norms, gradients = [], [], []
    for step in range(1, train["steps"] + 1):
        inputs, targets, counts, seen = batch(tokens, config["data"], train, shape["seq_length"], step - 1)
        per_token = functional.cross_entropy(model(inputs, seen).flatten(0, 1), targets.flatten(), reduction="none")
        loss = (per_token * counts.flatten().to(dtype)).sum() / counts.sum().to(dtype)
        adamw.zero_grad()
        loss.backward()
        if step in (1, train["steps"]):
            gradients.append({name: p.grad.double().numpy().copy() for name, p in model.named_parameters()})
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), train["clip_grad"]).item())
        losses.append(loss.item())
        for group in adamw.param_groups:
            group["lr"] = learning_rate(optimizer, step)
        adamw.step()
    return losses, norms, gradients


# ---- output ---------------------------------------------------------------------------------------------------------------------


def write(name, losses, norms, gradients):
    lines = [f"# Made by make_reference.py with PyTorch {torch.__version__.split('+')[0]} in float32. The form is described there."]
    lines += [f"step {k} {loss:.9g} {size:.9g}" for k, (loss, size) in enumerate(zip(losses, norms), start=1)]
    lines += [f"parameter {parameter} {value.size}" for parameter, value in gradients[0].items()]
    (FOLDER / f"{name}.reference").write_text("\n".join(lines) + "\n")
    with open(FOLDER / f"{name}.gradients", "wb") as file:
        for step in gradients:
            for value in step.values():
                file.write(value.astype("<f4").tobytes())


def distance(ours, theirs):
    """Norm of the difference over the norm, over all parameters together."""
    difference = sum(numpy.square(ours[name] - theirs[name]).sum() for name in theirs)
    return math.sqrt(difference / sum(numpy.square(value).sum() for value in theirs.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--noise", action="store_true", help="compare float32 with float64 instead of writing")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokens = make_tokens()
    if not arguments.noise:
        tokens.tofile(FOLDER / "tokens.u16")
    for name in MODELS:
        config = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
        single = train_model(config, tokens, torch.float32)
        if not arguments.noise:
            write(name, *single)
            print(f"{name}: loss {single[0][0]:.4f} to {single[0][-1]:.4f}, norm {single[1][0]:.3f} to {single[1][-1]:.3f}")
            continue
        double = train_model(config, tokens, torch.float64)
        loss = max(abs(a - b) / b for a, b in zip(single[0], double[0]))
        first, last = (distance(a, b) for a, b in zip(single[2], double[2]))
        print(f"{name}: float32 against float64: losses {loss:.1e}, gradients {first:.1e} at the first step, {last:.1e} at the last")


if __name__ == "__main__":
    main()
