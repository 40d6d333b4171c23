"""Makes hugging_face/ with the reference library (transformers), which nothing else here needs.

    python make_hugging_face.py        # needs transformers and torch

Of each tiny model: MODEL/config.json and MODEL/model.safetensors as the library saves them, MODEL/tokens.u16 (four sequences and one token more),
MODEL/logits.f32 (little-endian, [sequence, position, vocabulary]) of those tokens, and MODEL/loss, the mean over their next tokens. Weights are
random, biases and norms too, so that nothing that is exchanged can be forgotten. Sizes divide nothing.
"""
import pathlib
import shutil

import numpy
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

FOLDER = pathlib.Path(__file__).parent / "hugging_face"
SEQUENCES = 4


def models():
    quiet = {"bos_token_id": None, "eos_token_id": None}
    gpt2 = {"vocab_size": 37, "n_positions": 11, "n_embd": 15, "n_layer": 2, "n_head": 3, "n_inner": 22, "layer_norm_epsilon": 1e-5,
            "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0} | quiet
    llama = {"vocab_size": 41, "hidden_size": 20, "intermediate_size": 26, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 13, "rms_norm_eps": 1e-6} | quiet
    yield "gpt2", GPT2LMHeadModel(GPT2Config(**gpt2)), 11
    yield "gpt2_untied", GPT2LMHeadModel(GPT2Config(**gpt2, tie_word_embeddings=False)), 11
    yield "llama", LlamaForCausalLM(LlamaConfig(**llama, rope_parameters={"rope_type": "default", "rope_theta": 5000.0})), 13
    yield "llama_biased_tied", LlamaForCausalLM(LlamaConfig(**llama, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)), 13


def main():
    torch.manual_seed(20261130)
    torch.set_num_threads(1)
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name, model, length in models():
        with torch.no_grad():
            for parameter in model.parameters():
                spread = 0.3 * torch.randn_like(parameter)
                parameter.copy_(1 + spread if parameter.dim() == 1 and parameter.mean() == 1 else spread)
        model.eval()
        folder = FOLDER / name
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        tokens = torch.randint(model.config.vocab_size, (SEQUENCES * length + 1,))
        tokens.numpy().astype("<u2").tofile(folder / "tokens.u16")
        inputs, targets = tokens[:-1].view(SEQUENCES, length), tokens[1:].view(SEQUENCES, length)
        with torch.no_grad():
            logits = model(input_ids=inputs).logits
        logits.numpy().astype("<f4").tofile(folder / "logits.f32")
        loss = torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), targets.flatten()).item()
        (folder / "loss").write_text(f"{loss:.12g}\n")
        print(f"{name}: loss {loss:.6f}, {sum(p.numel() for p in model.parameters())} parameters, logits up to {logits.abs().max():.3f}")


if __name__ == "__main__":
    main()
