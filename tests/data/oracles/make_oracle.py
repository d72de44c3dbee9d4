#!/usr/bin/env python3
"""Makes the oracle of a model family: a small model with random weights and what it must compute.

    make_oracle.py MODEL... --converter LLAMA_CPP      the models of MODELS below, into folders beside this file
    make_oracle.py --rope-scalings HF_FOLDER           other rotations of one model's weights (ROPE_SCALINGS below)

needs torch, transformers, tokenizers, safetensors and gguf from PyPI, and a source tree of llama.cpp for its converter.

For a new family, add an entry to MODELS: the configuration class of transformers and a configuration with odd sizes
(heads that do not divide the hidden size, one or few KV heads, a vocabulary that is no power of two) and constants far
from 1, so that a forgotten one shows. Expected values come from transformers alone, in float32 with eager attention and
without a KV cache: each sequence is computed at once. The weights are rounded to bfloat16 first, so that the
safetensors folder, the GGUF and the float32 model are the same model. The GGUF is the converter's; it is told that the
vocabulary is a byte-level one and its pre-tokenizer's name, which it would otherwise look up by a hash of real ones.
"""
import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
TOKENIZER = HERE.parent / "tokenizers/synthetic/llama-bpe.tokenizer.json"
VOCABULARY = 331  # bytes, merges and special tokens
SPECIAL = ["<|begin_of_text|>", "<|eot_id|>"]
BOS, EOS = VOCABULARY - 2, VOCABULARY - 1
PROMPTS = {"p1": 1, "p7": 7, "p70": 70, "p600": 600}


def sizes(hidden, feed_forward, layers, heads, kv_heads, **other):
    return dict(hidden_size=hidden, intermediate_size=feed_forward, num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv_heads, max_position_embeddings=2048, **other)


def rope(theta=10000.0, kind="default", **other):
    return {"rope_type": kind, "rope_theta": theta, **other}


# config: class of transformers; arguments: its configuration. `extra`: keys of released checkpoints' config.json that
# transformers does not write. `contexts`: prompts that a runtime computes as transformers does only when it is loaded
# for a context of at most this length (a rotation that depends on the length).
MODELS = {
    "olmo2": dict(
        config="Olmo2Config",
        arguments=sizes(56, 104, 3, 4, 2, rope_parameters=rope(500000.0), tie_word_embeddings=False)),
    "ministral3": dict(
        config="Ministral3Config",
        arguments=sizes(56, 96, 3, 4, 1, head_dim=24, tie_word_embeddings=False, rope_parameters=rope(
            20000.0, "yarn", factor=4.0, original_max_position_embeddings=128, beta_fast=32.0, beta_slow=1.0,
            mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3))),
    "granite": dict(
        config="GraniteConfig",
        arguments=sizes(56, 104, 3, 4, 2, rope_parameters=rope(10000.0), tie_word_embeddings=False,
                        embedding_multiplier=3.0, attention_multiplier=0.11, residual_multiplier=0.6,
                        logits_scaling=0.7)),
    "cohere2": dict(
        config="Cohere2Config",
        arguments=sizes(56, 104, 5, 4, 2, rope_parameters=rope(50000.0), sliding_window=24, logit_scale=0.25,
                        tie_word_embeddings=True),
        extra={"rotary_pct": 1.0, "sliding_window_pattern": 4, "position_embedding_type": "rope_gptj",
               "use_embedding_sharing": True, "use_gated_activation": True, "use_parallel_block": True,
               "use_parallel_embedding": True, "order_of_interleaved_layers": "local_attn_first"}),
    "phi3-longrope": dict(
        config="Phi3Config",
        arguments=sizes(64, 96, 3, 4, 2, original_max_position_embeddings=64, tie_word_embeddings=True,
                        rope_parameters=rope(10000.0, "longrope", partial_rotary_factor=0.75,
                                             original_max_position_embeddings=64,
                                             short_factor=[1.0, 1.05, 1.1, 1.2, 1.3, 1.5],
                                             long_factor=[1.0, 1.5, 2.5, 6.0, 14.0, 30.0])),
        tokenizer_class="GPT2Tokenizer",  # the converter takes any other for SentencePiece
        contexts={"p1": 64, "p7": 64}),
}

# Of the weights of llama-gqa-rope3: name -> rope_scaling of its config.json.
ROPE_SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "yarn-attention-factor": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512,
                              "attention_factor": 0.9, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn-mscale": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 0.7,
                    "mscale_all_dim": 1.3},
}


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def write_tokenizer(folder, tokenizer_class):
    """The bytes and first merges of a synthetic byte-level vocabulary, two special tokens at the end."""
    tokenizer = json.loads(TOKENIZER.read_text(encoding="utf-8"))
    model, plain = tokenizer["model"], VOCABULARY - len(SPECIAL)
    model["vocab"] = {token: index for token, index in model["vocab"].items() if index < plain}
    model["merges"] = [pair for pair in model["merges"] if "".join(pair) in model["vocab"]]
    tokenizer["added_tokens"] = [
        {"id": plain + i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True} for i, token in enumerate(SPECIAL)]
    write_json(folder / "tokenizer.json", tokenizer)
    write_json(folder / "tokenizer_config.json",
               {"tokenizer_class": tokenizer_class, "bos_token": SPECIAL[0], "eos_token": SPECIAL[1],
                "add_bos_token": False, "clean_up_tokenization_spaces": False})
    write_json(folder / "generation_config.json", {"bos_token_id": BOS, "eos_token_id": EOS, "do_sample": False})


def set_weights(model, seed):
    """Spreads that keep scores, gates and logits in the range of a trained model's; then bfloat16."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = torch.randn(parameter.shape, generator=random)
            columns = math.sqrt(parameter.shape[-1])
            if parameter.dim() == 1:
                value = 0.2 * value if name.endswith("bias") else 1 + 0.25 * value
            elif "embed_tokens" in name:
                value *= 1.5 / columns
            elif "lm_head" in name:
                value *= 2.0 / columns
            else:
                value *= (1.6 if "q_proj" in name or "k_proj" in name or "qkv_proj" in name else 1.2) / columns
            parameter.copy_(value.to(torch.bfloat16).to(torch.float32))
    model.tie_weights()


def released_style(config):
    """rope_theta beside rope_scaling, as released checkpoints have it; transformers 5 writes rope_parameters."""
    parameters = config.get("rope_parameters")
    if config["model_type"] == "ministral3" or not parameters:
        return config
    del config["rope_parameters"]
    config["rope_theta"] = parameters.pop("rope_theta")
    if "partial_rotary_factor" in parameters:
        config["partial_rotary_factor"] = parameters.pop("partial_rotary_factor")
    parameters.pop("original_max_position_embeddings", None)
    config["rope_scaling"] = None if parameters["rope_type"] == "default" else parameters
    return config


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()


def logits(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def greedy(model, ids, count=48):
    ids, tokens, margins = list(ids), [], []
    for _ in range(count):
        best, chosen = torch.topk(logits(model, ids)[-1], 2)
        tokens.append(int(chosen[0]))
        margins.append(round(float(best[0] - best[1]), 6))
        ids.append(tokens[-1])
    return {"tokens": tokens, "margin": margins}


def inner_values(model, ids):
    """The embedding, and per layer its output and what attention and feed-forward put out."""
    values, hooks = {}, []

    def keep(name):
        def hook(module, inputs, output):
            output = output[0] if isinstance(output, tuple) else output
            values[name] = output.detach().reshape(-1, output.shape[-1]).clone()
        return hook

    hooks.append(model.model.embed_tokens.register_forward_hook(keep("embed")))
    for i, layer in enumerate(model.model.layers):
        hooks.append(layer.register_forward_hook(keep(f"layer.{i}.out")))
        for part in ("self_attn", "mlp"):
            hooks.append(getattr(layer, part).register_forward_hook(keep(f"layer.{i}.{part}")))
    logits(model, ids)
    for hook in hooks:
        hook.remove()
    return values


def prompts(seed):
    """Token ids with a few frequent ones and many rare ones, as text has."""
    random = torch.Generator().manual_seed(seed)
    weights = 1.0 / torch.arange(3, VOCABULARY + 1, dtype=torch.float64)
    order = torch.randperm(VOCABULARY - 2, generator=random)
    return {name: order[torch.multinomial(weights, count, replacement=True, generator=random)].tolist()
            for name, count in PROMPTS.items()}


def convert(folder, out, converter):
    """llama.cpp's converter in a process of its own: it reads its command line at import."""
    program = ("import sys; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/gguf-py']; del sys.argv[1]; "
               "import convert_hf_to_gguf, conversion.base, conversion.llama; "
               "conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: 'llama-bpe'; "
               "conversion.llama.LlamaModel.set_vocab = conversion.base.TextModel._set_vocab_gpt2; "
               "convert_hf_to_gguf.main()")
    subprocess.run([sys.executable, "-c", program, str(converter), str(folder), "--outfile", str(out), "--outtype",
                    "bf16", "--model-name", out.stem], check=True, capture_output=True)


def make(name, converter):
    entry, out = MODELS[name], HERE / name
    folder = out / "hf"
    folder.mkdir(parents=True, exist_ok=True)
    seed = int.from_bytes(name.encode(), "little") % 1000003
    config = getattr(transformers, entry["config"])(
        vocab_size=VOCABULARY, bos_token_id=BOS, eos_token_id=EOS, pad_token_id=None, **entry["arguments"])
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    set_weights(model, seed)
    model.to(torch.bfloat16).save_pretrained(folder)
    written = released_style(json.loads((folder / "config.json").read_text()))
    written.update(entry.get("extra", {}))
    written["torch_dtype"] = written["dtype"] = "bfloat16"
    write_json(folder / "config.json", written)
    write_tokenizer(folder, entry.get("tokenizer_class", "PreTrainedTokenizerFast"))

    model, ids = load(folder), prompts(seed)
    tensors = {f"{prompt}.last_logits": logits(model, tokens)[-1] for prompt, tokens in ids.items()}
    tensors.update({f"p7.{part}": value for part, value in inner_values(model, ids["p7"]).items()})
    text = {prompt: greedy(model, ids[prompt]) for prompt in ("p7", "p70")}
    wide = load(folder).double()
    noise = max(float((logits(wide, tokens)[-1] - tensors[f"{prompt}.last_logits"]).abs().max())
                for prompt, tokens in ids.items())
    save_file({key: value.contiguous() for key, value in tensors.items()}, out / "expected.safetensors")
    expected = {"prompts": {prompt: {"ids": tokens} for prompt, tokens in ids.items()}, "greedy": text,
                "contexts": entry.get("contexts", {}), "seed": seed, "f32_vs_f64_max_abs": noise,
                "transformers": transformers.__version__, "torch": torch.__version__}
    (out / "expected.json").write_text(json.dumps(expected) + "\n")
    convert(folder, out / f"{name}-BF16.gguf", converter)
    # Only the converter needed these; the GGUF has them.
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (folder / file).unlink()
    for file in (folder / "model.safetensors", out / "expected.safetensors"):
        file.chmod(0o644)  # safetensors writes them for the owner alone
    count = sum(parameter.numel() for parameter in model.parameters())
    spread = float(tensors["p70.last_logits"].std())
    print(f"{name}: {count} parameters, float32 noise {noise:.1e}, logits' spread {spread:.2f}, "
          f"distinct greedy tokens {[len(set(t['tokens'])) for t in text.values()]}, "
          f"least margin {min(min(t['margin']) for t in text.values()):.4f}")


def rope_scalings(folder):
    """Last logits of llama-gqa-rope3's prompts under ROPE_SCALINGS, from a copy of its folder with another config."""
    out = HERE / "llama-gqa-rope3"
    ids = {name: prompt["ids"] for name, prompt in json.loads((out / "expected.json").read_text())["prompts"].items()}
    tensors = {}
    for name, scaling in ROPE_SCALINGS.items():
        with tempfile.TemporaryDirectory() as temporary:
            for file in ("config.json", "model.safetensors"):
                shutil.copy(folder / file, temporary)
            path = pathlib.Path(temporary) / "config.json"
            path.chmod(0o644)
            write_json(path, {**json.loads(path.read_text()), "rope_scaling": scaling})
            model = load(temporary)
            for prompt in ("p70", "p600"):
                tensors[f"{name}.{prompt}.last_logits"] = logits(model, ids[prompt])[-1].contiguous()
    save_file(tensors, out / "rope-scalings-hf.safetensors")
    (out / "rope-scalings-hf.safetensors").chmod(0o644)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("models", nargs="*", choices=[[], *MODELS])
    arguments.add_argument("--converter", type=pathlib.Path, help="llama.cpp's source tree")
    arguments.add_argument("--rope-scalings", type=pathlib.Path, help="the folder llama-gqa-rope3/hf of all oracles")
    given = arguments.parse_args()
    if given.models and given.converter is None:
        arguments.error("give --converter, a source tree of llama.cpp")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in given.models:
        make(name, given.converter)
    if given.rope_scalings:
        rope_scalings(given.rope_scalings)


if __name__ == "__main__":
    main()
