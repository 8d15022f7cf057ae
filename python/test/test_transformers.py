"""Models of Hugging Face's transformers, of random weights, unchanged: as plain PyTorch trains them, in chunks that
hardly stay in memory."""
import importlib.util
import tempfile
import unittest

import torch

from support import BF16, F32, IS_LONG, VERSION, Case, config, engine, masters, pinned, train
from patrickstar import Refused, init, initialize_engine

try:
    import transformers
    from transformers import (BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                              LlamaForCausalLM)
    transformers.logging.set_verbosity_error()
except ImportError:
    raise unittest.SkipTest("transformers is not installed")

VOCABULARY, LABELS = 200, 3


def gpt2():
    return GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=3, n_head=4, vocab_size=VOCABULARY, n_positions=64,
                                      bos_token_id=0, eos_token_id=0))


def llama():
    return LlamaForCausalLM(LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=VOCABULARY, max_position_embeddings=64, bos_token_id=0, eos_token_id=0, pad_token_id=0))


def bert():
    return BertForSequenceClassification(BertConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, vocab_size=VOCABULARY,
        max_position_embeddings=64, num_labels=LABELS))


def tokens():
    return torch.randint(0, VOCABULARY, (3, 16))


def causal(model, t):
    ids = tokens()
    return model(input_ids=ids, labels=ids).loss


def classes(model, t):
    mask = (torch.arange(16)[None] < torch.tensor([16, 9, 12])[:, None]).long()
    return model(input_ids=tokens(), labels=torch.randint(0, LABELS, (3,)), attention_mask=mask).loss


CHUNK = 1 << 13
MODELS = ((gpt2, causal), (llama, causal), (bert, classes))


def checkpointed(make, is_reentrant):
    def build():
        model = make()
        if is_reentrant is not None:
            model.gradient_checkpointing_enable({"use_reentrant": is_reentrant})
        return model
    return build


class Training(Case):
    def test_bits(self):
        for make, step in MODELS:
            for dtype in (BF16, F32):
                for is_reentrant in (None, False, True) if IS_LONG else (False,) if dtype == F32 else (None,):
                    with self.subTest(model=make.__name__, dtype=dtype, checkpointing=is_reentrant):
                        self.same(checkpointed(make, is_reentrant), step, n=5 if IS_LONG else 3, dtype=dtype,
                                  default_chunk_size=CHUNK, memory__device="4MB", beside=0)

    def test_losses_are_those_of_adamw_of_pytorch(self):
        for make, step in MODELS:
            with self.subTest(model=make.__name__):
                model, optimizer = engine(make, F32, default_chunk_size=CHUNK,
                                          optimizer={"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": .01}})
                plain = make()
                plain.load_state_dict(model.state_dict())
                theirs = torch.optim.AdamW(plain.parameters(), lr=1e-3, weight_decay=.01)
                plain.eval(), model.eval()  # without dropout
                for t in range(10):
                    torch.manual_seed(t)
                    loss = step(model, t)
                    model.backward(loss)
                    optimizer.step()
                    torch.manual_seed(t)
                    theirs.zero_grad()
                    other = step(plain, t)
                    other.backward()
                    theirs.step()
                    self.assertAlmostEqual(loss.item(), other.item(), delta=1e-5)

    def test_a_third_of_the_model_data_and_disk(self):
        """Budgets have the same bits; memory is kept."""
        def big():
            return GPT2LMHeadModel(GPT2Config(n_embd=192, n_layer=4, n_head=4, vocab_size=2000, n_positions=64,
                                              bos_token_id=0, eos_token_id=0))
        n_bytes = sum(p.numel() for p in big().parameters()) * 14
        third = n_bytes // 3
        roomy = train(big, causal, n=3, is_tight=False, default_chunk_size=1 << 16, memory__device="128MB",
                      memory__host="256MB")
        tight = train(big, causal, n=3, is_tight=False, default_chunk_size=1 << 16, memory__device=third * 3 // 4,
                      memory__host=third // 4, memory__disk="1GB")
        self.assertGreater(tight.moved_bytes, n_bytes)
        self.assertEqual(roomy.losses, tight.losses)
        for name, value in roomy.values.items():
            self.assertTrue(torch.equal(value, tight.values[name]), name)


class Using(Case):
    def test_generate(self):
        for make in (gpt2, llama):
            with self.subTest(model=make.__name__):
                torch.manual_seed(0)
                plain = make().eval()
                for param in plain.parameters():  # buffers stay fp32
                    param.data = param.data.to(BF16)
                ids = tokens()[:, :4]
                try:
                    expected = plain.generate(ids, max_new_tokens=12, do_sample=False)
                except ValueError as error:
                    self.skipTest("this transformers does not generate with this PyTorch: %s" % error)
                model, _ = engine(make, default_chunk_size=CHUNK)
                model.eval()
                self.assertTrue(torch.equal(model.generate(ids, max_new_tokens=12, do_sample=False), expected))
                self.assertEqual(pinned(model), [])

    def test_files(self):
        for make in (gpt2, llama):
            with self.subTest(model=make.__name__), tempfile.TemporaryDirectory() as folder:
                model, _ = engine(make, default_chunk_size=CHUNK)
                model.save_pretrained(folder)
                kind = type(model.module)
                read = kind.from_pretrained(folder, torch_dtype=F32)
                for name, value in masters(model).items():
                    self.assertTrue(torch.equal(read.state_dict()[name], value), name)
                self.from_pretrained(make, kind, folder, masters(model))

    def from_pretrained(self, make, kind, folder, expected):
        for dtype in (F32, BF16):
            model, optimizer = initialize_engine(lambda: kind.from_pretrained(folder, torch_dtype=dtype), 0,
                                                 config(default_chunk_size=CHUNK))
            for name, value in masters(model).items():
                self.assertTrue(torch.equal(value, expected[name].to(dtype).float()), name)
            model.train()
            model.backward(causal(model, 1))
            optimizer.step()

    @unittest.skipIf(VERSION < (2, 0), "PyTorch 1.13 has no torch.device context")
    def test_on_meta(self):
        for make, step in MODELS:
            with torch.device("meta"):
                given = make()
            if transformers.__version__ < "5":  # buffers that only constructors fill
                self.refused(lambda: initialize_engine(model=given, config=config()), "on meta, and no initialiser",
                             Refused)
                continue
            with self.subTest(model=make.__name__):
                model, optimizer = initialize_engine(model=given, config=config(default_chunk_size=CHUNK))
                expected = make()
                with torch.no_grad():
                    for name, buffer in expected.named_buffers():
                        self.assertTrue(torch.equal(dict(model.named_buffers())[name], buffer), name)
                    for name, value in expected.state_dict().items():  # as transformers initialises them
                        self.assertAlmostEqual(model.state_dict()[name].float().std(unbiased=False).item(),
                                               value.float().std(unbiased=False).item(), delta=.004, msg=name)
                model.backward(step(model, 1))
                optimizer.step()

    def test_from_pretrained_in_a_block(self):
        with tempfile.TemporaryDirectory() as folder:
            plain = llama()
            plain.save_pretrained(folder)
            for options in ({}, {"torch_dtype": BF16}):
                with init(config(F32, default_chunk_size=CHUNK)):
                    module = LlamaForCausalLM.from_pretrained(folder, **options)
                model, optimizer = initialize_engine(model=module)
                for name, value in plain.state_dict().items():
                    self.assertTrue(torch.equal(masters(model).get(name, value),
                                                value.to(options.get("torch_dtype", F32)).float()), name)
                model.train()
                model.backward(causal(model, 1))
                optimizer.step()

    def test_resized_embeddings(self):
        def make():
            model = gpt2()
            model.resize_token_embeddings(VOCABULARY + 7)
            return model
        model, optimizer = engine(make, default_chunk_size=CHUNK)
        self.assertEqual(model.module.transformer.wte.weight.shape, (VOCABULARY + 7, 64))
        self.assertIs(model.module.lm_head.weight, model.module.transformer.wte.weight)
        model.backward(causal(model, 1))
        optimizer.step()

    @unittest.skipUnless(importlib.util.find_spec("peft"), "peft is not installed")
    def test_adapters(self):
        """Low-rank adapters of peft over a model that is frozen."""
        import peft

        def adapted():
            return peft.get_peft_model(gpt2(), peft.LoraConfig(r=4, target_modules=["c_attn"]))
        for dtype in (BF16, F32):
            self.same(adapted, causal, dtype=dtype, default_chunk_size=CHUNK)
        model, optimizer = engine(adapted, F32, default_chunk_size=CHUNK)
        before = masters(model)
        model.backward(causal(model, 1))
        optimizer.step()
        changed = {name for name, value in masters(model).items() if not torch.equal(value, before[name])}
        self.assertEqual(changed, {name for name in before if "lora_B" in name})  # the gradient of lora_A is 0 yet
        self.assertEqual(len(optimizer.state_dict()["state"]), sum("lora_" in name for name in before))
        ids = tokens()
        self.assertEqual(model.generate(input_ids=ids, max_new_tokens=4, do_sample=False).shape, (3, 20))
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            expected = model.eval()(input_ids=ids).logits
            model.save_pretrained(folder)
            base = gpt2()
            base.load_state_dict({name.replace("base_model.model.", "").replace(".base_layer", ""): value
                                  for name, value in model.state_dict().items() if "lora_" not in name})
            read = peft.PeftModel.from_pretrained(base, folder).eval()
            self.assertTrue(torch.equal(read(input_ids=ids).logits, expected))
            merged = model.merge_and_unload()
            self.assertTrue(torch.allclose(merged.eval()(input_ids=ids).logits, expected, atol=1e-5))


if __name__ == "__main__":
    unittest.main()
