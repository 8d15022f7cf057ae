// program.cpp - a small transformer trained from C++.
//
//     g++ -std=c++17 program.cpp $(pkg-config --cflags --libs patrickstar) -o program
#include <cstdio>
#include <patrickstar.hpp>
#include <string>
#include <vector>

namespace ps = patrickstar;

namespace
{

// Adam, bf16, and 1 MB of device memory; chunks that do not fit are on the host.
const char options[] = R"({
    "train_micro_batch_size_per_gpu": 4, "data": {"sequence_length": 32},
    "optimizer": {"type": "Adam", "params": {"lr": 0.003}},
    "bf16": {"enabled": true}, "activation_checkpointing": {"enabled": true}, "train": {"threads": 2},
    "memory": {"device": "1MB", "host": "16MB"}})";

struct shape {
    int layers, width, heads, vocabulary, positions;
};

ps_status transformer(ps_builder *b, const shape &s)
{
    ps_value x = ps_token_embedding(b, "wte", s.vocabulary, s.width);
    x = ps_position_embedding(b, x, "wpe", s.positions);
    for (int i = 0; i < s.layers; i++) {
        const ps::block block(b, "h." + std::to_string(i));
        const ps_value qkv = ps_linear(b, ps_layer_norm(b, x, "ln_1", 1e-5f), "attn.qkv", 3 * s.width, 1);
        x = ps_add(b, x, ps_linear(b, ps_attention(b, qkv, s.heads, 1, 0), "attn.out", s.width, 1));
        const ps_value up = ps_linear(b, ps_layer_norm(b, x, "ln_2", 1e-5f), "mlp.up", 4 * s.width, 1);
        x = ps_add(b, x, ps_linear(b, ps_gelu(b, up, PS_ACTIVATION_GELU_TANH), "mlp.down", s.width, 1));
    }
    ps_cross_entropy(b, ps_layer_norm(b, x, "ln_f", 1e-5f), "wte.weight", nullptr, s.vocabulary, nullptr);
    return PS_OK;
}

// Training data: each token is the previous one plus 7.
ps_status train(ps::engine &engine, const shape &s)
{
    std::vector<std::int32_t> tokens(4 * 32), targets(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); i++) {
        tokens[i] = static_cast<std::int32_t>(i / 32 * 50 + i % 32 * 7) % s.vocabulary;
        targets[i] = (tokens[i] + 7) % s.vocabulary;
    }
    auto batch = ps::sized<ps_batch>();
    batch.tokens = tokens.data();
    batch.targets = targets.data();
    for (int step = 1; step <= 30; step++) {
        float loss = 0;
        if (const ps_status st = engine.forward(batch, loss); st != PS_OK) return st;
        if (const ps_status st = engine.backward(); st != PS_OK) return st;
        if (const ps_status st = engine.step(); st != PS_OK) return st;
        if (step % 10 == 0) std::printf("loss %.3f after step %d\n", static_cast<double>(loss), step);
    }
    return PS_OK;
}

ps_status run()
{
    const shape s = {4, 64, 4, 256, 32};
    ps::config config;
    ps::engine engine;
    ps_status st = ps::config::parse(options, "options", config);
    if (st == PS_OK)
        st = ps::engine::create(
            config, [&s](ps_builder *b) { return transformer(b, s); }, engine);
    if (st == PS_OK) st = train(engine, s);
    if (st == PS_OK) {
        const ps_memory_info memory = engine.memory_info();
        std::printf("model data %lld bytes, device memory at most %lld bytes\n",
                    static_cast<long long>(memory.model_data_bytes), static_cast<long long>(memory.device_peak_bytes));
    }
    return st;
}

} // namespace

int main()
{
    if (run() == PS_OK) return 0;
    std::fprintf(stderr, "%s\n", ps_last_error());
    return 1;
}
