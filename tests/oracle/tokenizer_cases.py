"""Small tokenizers of every kind that hetrain_tokenizer.h reads, made with Hugging Face's tokenizers, and random texts that look for their corners."""
import json
import random
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")

SPACES = [chr(c) for c in (9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, 0x2000, 0x2003, 0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)]
NEARLY_SPACES = [chr(c) for c in (0x1C, 0x1F, 0x180E, 0x200B, 0x2060, 0xFEFF, 0x200C, 0x200D)]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'vE", "'M", "'LL", "'lL", "'D", "'\u017f", "'", "''", "'l", "'r"]
SCRIPTS = [(0x20, 0x7F), (0x20, 0x7F), (0xA0, 0x250), (0x250, 0x370), (0x370, 0x590), (0x590, 0x900), (0x900, 0xE00), (0xE00, 0x1000),
           (0x1000, 0x1200), (0x1100, 0x1200), (0x1200, 0x1E00), (0x1E00, 0x2000), (0x2000, 0x2C00), (0x2C00, 0x3040), (0x3040, 0x3400), (0x4E00, 0x5200),
           (0xA640, 0xAC00), (0xAC00, 0xAD00), (0xF900, 0x10000), (0x10000, 0x11000), (0x11000, 0x12000), (0x16000, 0x17000), (0x1B000, 0x1BD00),
           (0x1D000, 0x1D800), (0x1E000, 0x1F000), (0x1F000, 0x1FB00), (0x20000, 0x20100), (0x2F800, 0x2FA20), (0xE0000, 0xE0200), (0x0, 0x110000)]
MARKS = [chr(c) for c in (0x300, 0x301, 0x302, 0x303, 0x304, 0x307, 0x308, 0x30A, 0x323, 0x327, 0x328, 0x334, 0x338, 0x345, 0x344, 0x5B0, 0x5BC, 0x64B, 0x651,
                          0x93C, 0x94D, 0x9BE, 0xDD9, 0xE38, 0xE48, 0xF71, 0xF72, 0x1161, 0x1175, 0x11A7, 0x11A8, 0x11C2, 0x3099, 0x309A, 0x1D165, 0x1D16E,
                          0x110BA, 0x11127, 0x898, 0x1DF6, 0x1133B)]
BASES = list("aeiouAEIOUnsSKck=<>") + [chr(c) for c in (0x41, 0xC5, 0xE9, 0x1D5, 0x212B, 0x2126, 0x3B1, 0x1F80, 0x418, 0x5D1, 0x5E9, 0x627, 0x915, 0x929, 0x958,
                                                      0x9C7, 0xDD9, 0xF40, 0xFB1D, 0x1100, 0x1112, 0xAC00, 0xAC01, 0xD7A3, 0x304B, 0x30CF, 0x11099, 0x1D157,
                                                      0x1D15E, 0x2F801, 0xF900, 0xFA6C, 0x1E9B)]
DIGITS = "0123456789\u0663\u0969\u0e53\u00bd\u00b2\u2167\u3007\u32c0\U0001D7D9\U00010D43\U000116D3"
EMOJI = ["\U0001F600", "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\U0001F1E9\U0001F1EA", "\u2764\ufe0f", "\U0001F44D\U0001F3FD"]
ADDED = ["<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>", "<|", "|>", "<|endoftext", "<think>", "  ", "   ", "    ",
         "\u00e9t\u00e9", "e\u0301te\u0301", "word", "strip", "left", "right", "\u212bngstrom", "\u00c5ngstrom", "aab", "aa", "aaab", "_word", "word\u0301"]


def random_text(rng, words):
    """A few pieces of every sort."""
    text = []
    for _ in range(rng.choice((1, 1, 2, 3, 5, 8, 13))):
        sort = rng.randrange(14)
        if sort == 0:
            text.append("".join(rng.choice(SPACES[:6] + [" ", " ", "\n"]) for _ in range(rng.randrange(1, 7))))
        elif sort == 1:
            text.append("".join(rng.choice(SPACES + NEARLY_SPACES) for _ in range(rng.randrange(1, 4))))
        elif sort == 2:
            text.append(rng.choice(words) + rng.choice(CONTRACTIONS) + rng.choice(("", " ", rng.choice(words))))
        elif sort == 3:
            text.append("".join(rng.choice(DIGITS[:10] if rng.random() < 0.7 else DIGITS) for _ in range(rng.randrange(1, 9))))
        elif sort == 4:
            text.append("".join(rng.choice("!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'") for _ in range(rng.randrange(1, 5))) + rng.choice(("", "\n", "\r\n", "\n\n ")))
        elif sort == 5:
            low, high = rng.choice(SCRIPTS)
            text.append("".join(chr(c) for c in (rng.randrange(low, high) for _ in range(rng.randrange(1, 8))) if not 0xD800 <= c < 0xE000))
        elif sort == 6:
            text.append("".join(rng.choice(BASES) + "".join(rng.choice(MARKS) for _ in range(rng.randrange(0, 5))) for _ in range(rng.randrange(1, 4))))
        elif sort == 7:
            text.append(rng.choice(EMOJI))
        elif sort == 8:
            text.append(rng.choice(("", " ", "  ", "x", "\u00e9", "_")) + rng.choice(ADDED) + rng.choice(("", " ", "\t\n", "x", "\u0301", "_")))
        elif sort == 9:
            text.append("".join(rng.choice("ab") for _ in range(rng.randrange(1, 30))))
        elif sort == 10:
            text.append(rng.choice((" ", "\n", "\t")) * rng.randrange(1, 40))
        else:
            text.append(" ".join(rng.choice(words) for _ in range(rng.randrange(1, 8))) + rng.choice(("", " ", "\n", ". ")))
    return "".join(text)


def byte_level(split):
    if split is None:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def trained(text, split, vocab, specials=(), normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level(split)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=vocab, min_frequency=2, show_progress=False, special_tokens=list(specials),
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def corpus(path):
    """tinyshakespeare, and as much again of random texts, so that tokens of other scripts come about."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    rng = random.Random(1)
    words = text[:200000].split()
    more = [random_text(rng, words) for _ in range(400)]
    return text[:300000] + "".join(rng.choice(more) for _ in range(6000)) + "\u017fab\n\u017fa\n" * 200, words


def make(path):
    """{name: text of tokenizer.json}"""
    text, words = corpus(path)
    result = {}

    gpt2 = trained(text, None, 1500, ["<|endoftext|>"])
    gpt2.post_processor = processors.ByteLevel(trim_offsets=False)
    result["gpt2"] = gpt2.to_str()

    llama3 = trained(text, LLAMA3, 1500)
    data = json.loads(llama3.to_str())
    vocab = data["model"]["vocab"]
    for word in ("\u0120Gremio", "Capulet", "\u0120aab", "\u00c3\u00a9\u00c3\u00a9", "0123"):  # tokens that no merges lead to
        vocab.setdefault(word, len(vocab))
    data["model"]["ignore_merges"] = True
    llama3 = Tokenizer.from_str(json.dumps(data))
    llama3.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>"])
    bos = llama3.token_to_id("<|begin_of_text|>")
    llama3.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B", special_tokens=[("<|begin_of_text|>", bos)])])
    result["llama3"] = llama3.to_str()

    qwen2 = trained(text, QWEN2, 1500, normalizer=normalizers.NFC())
    qwen2.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    qwen2.add_tokens([AddedToken("<think>", normalized=False), AddedToken("e\u0301te\u0301", normalized=True), AddedToken("\u212bngstrom", normalized=False)])
    qwen2.post_processor = processors.ByteLevel(trim_offsets=False)
    result["qwen2"] = qwen2.to_str(pretty=True)

    neox = trained(text, None, 1300, ["<|endoftext|>"], normalizer=normalizers.NFC())
    neox.add_tokens([AddedToken(" " * n, normalized=True) for n in (24, 8, 4, 3, 2)])
    neox.add_tokens([AddedToken("word", single_word=True, normalized=False), AddedToken("strip", lstrip=True, rstrip=True, normalized=True),
                     AddedToken("left", lstrip=True, normalized=False), AddedToken("right", rstrip=True, single_word=True, normalized=True),
                     AddedToken("aa", normalized=False), AddedToken("aaab", normalized=False), AddedToken("aab", normalized=True)])
    neox.add_special_tokens([AddedToken("<|im_end|>", rstrip=True, lstrip=True, special=True, normalized=False)])
    neox.post_processor = processors.TemplateProcessing(single="$A <|endoftext|> <|im_end|>", special_tokens=[
        ("<|endoftext|>", neox.token_to_id("<|endoftext|>")), ("<|im_end|>", neox.token_to_id("<|im_end|>"))])
    result["neox"] = neox.to_str()

    prefix = trained(text, None, 700)
    prefix.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    prefix.add_special_tokens(["<|endoftext|>"])
    data = json.loads(prefix.to_str())
    data["model"]["merges"] = ["#version: 0.2"] + [" ".join(pair) for pair in data["model"]["merges"]]
    del data["model"]["type"]
    result["prefix"] = json.dumps(data, ensure_ascii=True)

    whole = trained(" ".join(words[:3000]), None, 600)
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    result["whole"] = whole.to_str()
    return result, words
