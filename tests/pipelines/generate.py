"""generate - text from a tiny language model of transformers with random weights: greedy, sampled and by beams."""

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration

import journal


def main():
    torch.manual_seed(13)
    torch.set_num_threads(1)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                                         pad_token_id=0, bos_token_id=1, eos_token_id=96)).eval()
    journal.watch(model, 'forward')
    prompt = torch.tensor([[1, 5, 9, 13, 17], [1, 6, 10, 14, 18]])
    for name, options in (('greedy', {}), ('sampled', {'do_sample': True, 'top_k': 5}), ('beams', {'num_beams': 2})):
        with journal.entry(name):
            tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=6, min_new_tokens=6, **options)
        print(name, tokens.tolist())
    translator = T5ForConditionalGeneration(T5Config(vocab_size=97, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4,
                                                     decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)).eval()
    journal.watch(translator, 'forward')
    with journal.entry('translate'):
        settings = GenerationConfig(max_new_tokens=4, min_new_tokens=4, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
        print('translate', translator.generate(prompt, generation_config=settings).tolist())


if __name__ == '__main__':
    main()
