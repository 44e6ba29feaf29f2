"""Writes tests/oracle/data/tokenizer: small tokenizers, texts with the ids that Hugging Face's tokenizers gives them, and tokenizers that it trained.

    python3 tests/oracle/tokenizer_vectors.py TEXT       TEXT: tinyshakespeare.txt

KIND.json is a tokenizer.json. KIND.vectors.json: [{"text", "ids": with the template, "bare": without it and with special tokens as text, "decoded": of
ids, "kept": of ids without special ones (both left out where bytes are missing from a character)}, ...]. train.txt, train_KIND.json: what
BpeTrainer makes of that text.
"""
import json
import os
import random
import sys
from tokenizers import Tokenizer
import tokenizer_cases as cases

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "tokenizer")
FIXED = ["", " ", "  ", "\n", " \n", "\n ", "a", " a", "a ", "  a", "\t\ta", "\r\n", "\r\n\r\na", "a \n b", "a  \n\n  b", "I'm you'll WE'RE it'S 'ſ'ſa", "1234567890",
         " 1234 ", "x1y22z333", "½²Ⅷ٣१", "don't!!!\n\n", "!!!\r\n\nx", "éclair e\u0301clair", "한국어 한", "हिन्दी की", "日本語テキスト", "👨‍👩‍👧 👍🏽",
         "a\u00a0b\u3000c\u2028d", "\u0378\u0fff\U0010ffff", "<|endoftext|>", "a<|endoftext|>b", " <|im_start|> x", "\x00\x01\x7f", "\ufeffBOM", "a\u0301\u0323\u0334b", "a\u0363\u0301 e\u0310\u0301\u0323", "'\u017fab'\u017fa x'\u017fab",
         "word words word", "xword word_", " strip  strip ", "aaaa aaab aab", "  left  ", " right  x", "\u212bngstrom \u00e9t\u00e9", "zero\u200bwidth\u200djoin"]


def vectors(tokenizer, texts):
    result = []
    for text in texts:
        case = {"text": text, "ids": tokenizer.encode(text).ids}
        tokenizer.encode_special_tokens = True
        case["bare"] = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        decoded, kept = tokenizer.decode(case["ids"], skip_special_tokens=False), tokenizer.decode(case["ids"], skip_special_tokens=True)
        if "\ufffd" not in decoded + kept:
            case.update({"decoded": decoded, "kept": kept})
        result.append(case)
    return result


def main():
    os.makedirs(OUT, exist_ok=True)
    kinds, words = cases.make(sys.argv[1])
    for name, text in kinds.items():
        rng = random.Random(name)
        texts = FIXED + [cases.random_text(rng, words) for _ in range(150)]
        with open(os.path.join(OUT, name + ".json"), "w", encoding="utf-8") as file:
            file.write(text)
        with open(os.path.join(OUT, name + ".vectors.json"), "w", encoding="utf-8") as file:
            lines = [json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in vectors(Tokenizer.from_str(text), texts)]
            file.write("[" + ",\n".join(lines) + "]\n")
    rng = random.Random(5)
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read(12000)
    text += "".join(rng.choice("ab") for _ in range(700)) + " aaaaaaaaaa " * 5 + "".join(cases.random_text(rng, words) for _ in range(120))
    text = text.replace("<|endoftext|>", "")  # which bounds words in hetrain's training, and is text in BpeTrainer's
    with open(os.path.join(OUT, "train.txt"), "w", encoding="utf-8", newline="") as file:
        file.write(text)
    for name, split in (("gpt2", None), ("llama3", cases.LLAMA3), ("qwen2", cases.QWEN2)):
        made = cases.trained(text, split, 900, ["<|endoftext|>"])
        with open(os.path.join(OUT, "train_%s.json" % name), "w", encoding="utf-8") as file:
            file.write(made.to_str())


if __name__ == "__main__":
    main()
