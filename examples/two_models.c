/* two_models.c - the processes of an MPI program train two models at once: even ranks one, odd ranks the other.
 *
 *     mpicc two_models.c $(pkg-config --cflags --libs patrickstar) && mpirun -np 4 ./a.out config.json 2
 *
 * The second argument is the number of models. */
#include <patrickstar_mpi.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != PS_OK) {                                                                                         \
            fprintf(stderr, "%s\n", ps_last_error());                                                                  \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                              \
        }                                                                                                              \
    } while (0)

enum { STEPS = 5, TOKENS_MAX = 4096 };

/* Training data: each token is the previous one plus 7, modulo the vocabulary. Each rank has its own. */
static void fill(int32_t *tokens, int32_t *targets, int64_t n, int64_t vocabulary, int64_t first)
{
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)((first + i * 7) % vocabulary);
        targets[i] = (int32_t)((tokens[i] + 7) % vocabulary);
    }
}

int main(int argc, char **argv)
{
    static int32_t tokens[TOKENS_MAX], targets[TOKENS_MAX];
    int level, rank;
    const int n_models = argc > 2 ? atoi(argv[2]) : 2;
    const char *first_seed = argc > 3 ? argv[3] : "1";
    MPI_Comm half;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % n_models, rank, &half);

    char seed[16];
    ps_config *config;
    ps_comm *comm;
    ps_engine *engine;
    CHECK(ps_config_load(argv[1], &config));
    snprintf(seed, sizeof seed, "%d", atoi(first_seed) + rank % n_models);
    CHECK(ps_config_set(config, "train.seed", seed)); /* the models differ */
    CHECK(ps_comm_init_mpi(config, half, &comm));
    ps_engine_options options = {.struct_size = sizeof options, .comm = comm, .purpose = PS_FOR_TRAINING};
    CHECK(ps_initialize_engine_with(ps_model_from_config, config, config, &options, &engine));

    int64_t B, T, vocabulary;
    uint64_t hash;
    ps_engine_get_shape(engine, &B, &T, NULL, &vocabulary);
    const ps_batch batch = {.struct_size = sizeof batch, .tokens = tokens, .targets = targets};
    for (int step = 0; step < STEPS && B * T <= TOKENS_MAX; step++) {
        fill(tokens, targets, B * T, vocabulary, step * 100 + ps_comm_rank(comm));
        CHECK(ps_forward(engine, &batch, NULL));
        CHECK(ps_backward(engine));
        CHECK(ps_step(engine));
    }
    CHECK(ps_engine_get_weights_xxh3(engine, &hash));
    if (ps_comm_rank(comm) == 0)
        printf("model with seed %s: %d ranks over %s, weights %016llx\n", seed, (int)ps_comm_size(comm),
               ps_comm_describe(comm), (unsigned long long)hash);
    ps_engine_destroy(engine);
    ps_comm_close(comm);
    ps_config_destroy(config);
    MPI_Comm_free(&half);
    MPI_Finalize();
    return 0;
}
