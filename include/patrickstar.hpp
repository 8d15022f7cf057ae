/* patrickstar.hpp - patrickstar.h for C++17: owning handles, model functions that are any callable, structures with
 * struct_size set. Header only; all functions of patrickstar.h can be used with it.
 *
 *     patrickstar::config config;
 *     patrickstar::engine engine;
 *     check(patrickstar::config::load("config.json", config));
 *     check(patrickstar::engine::create(config, [](ps_builder *b) { ...; return PS_OK; }, engine));
 *     auto batch = patrickstar::sized<ps_batch>();
 *     ...
 *     check(ps_forward(engine, &batch, &loss));
 *
 * Functions return a ps_status and do not throw. patrickstar::check turns a failure into an exception; it is absent
 * with -fno-exceptions. */
#ifndef PATRICKSTAR_HPP
#define PATRICKSTAR_HPP

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "patrickstar.h"

namespace patrickstar
{

/* A structure of patrickstar.h with struct_size set and all other members 0. */
template <typename T> T sized()
{
    T all = {};
    all.struct_size = sizeof all;
    return all;
}

#if defined(__cpp_exceptions)
} // namespace patrickstar

#include <stdexcept>

namespace patrickstar
{

/* what() is ps_last_error() at the time of the failure. */
class error : public std::runtime_error
{
  public:
    explicit error(ps_status st) : std::runtime_error(ps_last_error()), status_(st)
    {
    }
    ps_status status() const noexcept
    {
        return status_;
    }

  private:
    ps_status status_;
};

/* Throws patrickstar::error unless st is PS_OK. */
inline void check(ps_status st)
{
    if (st != PS_OK) throw error(st);
}
#endif

namespace detail
{
template <typename Handle, void (*Destroy)(Handle *)> struct deleter {
    void operator()(Handle *h) const noexcept
    {
        Destroy(h);
    }
};

/* Owns a handle and converts to it, so that functions of patrickstar.h accept the owner. */
template <typename Handle, void (*Destroy)(Handle *)> class owner
{
  public:
    owner() noexcept = default;
    /* Takes ownership of a handle of patrickstar.h. */
    explicit owner(Handle *h) noexcept : handle_(h)
    {
    }
    operator Handle *() const noexcept
    {
        return handle_.get();
    }
    Handle *get() const noexcept
    {
        return handle_.get();
    }
    /* The caller then owns the handle. */
    Handle *release() noexcept
    {
        return handle_.release();
    }
    void reset(Handle *h = nullptr) noexcept
    {
        handle_.reset(h);
    }

  private:
    std::unique_ptr<Handle, deleter<Handle, Destroy>> handle_;
};

/* A callable as a ps_model_func. An exception of the callable becomes a failure of the call that runs the model. */
template <typename Model> ps_status run_model(ps_builder *b, void *user)
{
#if defined(__cpp_exceptions)
    try {
        return (*static_cast<Model *>(user))(b);
    } catch (const std::exception &e) {
        return ps_set_last_error(PS_EINVAL, e.what());
    } catch (...) {
        return ps_set_last_error(PS_EINVAL, "the model function threw what is no std::exception");
    }
#else
    return (*static_cast<Model *>(user))(b);
#endif
}

using initializer = ps_status (*)(ps_model_func, void *, int, const ps_config *, ps_engine **);
} // namespace detail

/* Copies text that the library returned, and frees it. */
inline ps_status take_text(ps_status st, char *text, std::string &out)
{
    if (st == PS_OK && text != nullptr) out = text;
    ps_free(text);
    return st;
}

class config : public detail::owner<ps_config, ps_config_destroy>
{
  public:
    using owner::owner;

    /* All options at their defaults; from a file; from JSON text, which messages name `name`. On failure out is
     * empty. */
    [[nodiscard]] static ps_status create(config &out)
    {
        ps_config *c = nullptr;
        const ps_status st = ps_config_create(&c);
        out.reset(c);
        return st;
    }
    [[nodiscard]] static ps_status load(const std::string &path, config &out)
    {
        ps_config *c = nullptr;
        const ps_status st = ps_config_load(path.c_str(), &c);
        out.reset(c);
        return st;
    }
    [[nodiscard]] static ps_status parse(const std::string &text, const std::string &name, config &out)
    {
        ps_config *c = nullptr;
        const ps_status st = ps_config_parse(text.c_str(), name.c_str(), &c);
        out.reset(c);
        return st;
    }
    [[nodiscard]] ps_status set(const std::string &key, const std::string &value)
    {
        return ps_config_set(get(), key.c_str(), value.c_str());
    }
    [[nodiscard]] ps_status validate() const
    {
        return ps_config_validate(get());
    }
    [[nodiscard]] ps_status dump_json(std::string &out) const
    {
        char *text = nullptr;
        const ps_status st = ps_config_dump_json(get(), &text);
        return take_text(st, text, out);
    }
};

/* Training, inference and generation engines. One thread at a time may use an engine. */
class engine : public detail::owner<ps_engine, ps_engine_destroy>
{
  public:
    using owner::owner;

    /* model: a callable ps_status(ps_builder *), which is called within this function only; or, without it, the model
     * that the configuration describes. On failure out is empty. */
    template <typename Model>
    [[nodiscard]] static ps_status create(const config &c, Model &&model, engine &out, int local_rank = 0)
    {
        return make(ps_initialize_engine, c, model, out, local_rank);
    }
    [[nodiscard]] static ps_status create(const config &c, engine &out, int local_rank = 0)
    {
        return make(ps_initialize_engine, c, out, local_rank);
    }
    template <typename Model>
    [[nodiscard]] static ps_status create_inference(const config &c, Model &&model, engine &out, int local_rank = 0)
    {
        return make(ps_initialize_inference_engine, c, model, out, local_rank);
    }
    [[nodiscard]] static ps_status create_inference(const config &c, engine &out, int local_rank = 0)
    {
        return make(ps_initialize_inference_engine, c, out, local_rank);
    }
    template <typename Model>
    [[nodiscard]] static ps_status create_generation(const config &c, Model &&model, engine &out, int local_rank = 0)
    {
        return make(ps_initialize_generation_engine, c, model, out, local_rank);
    }
    [[nodiscard]] static ps_status create_generation(const config &c, engine &out, int local_rank = 0)
    {
        return make(ps_initialize_generation_engine, c, out, local_rank);
    }

    [[nodiscard]] ps_status forward(const ps_batch &batch, float &loss)
    {
        return ps_forward(get(), &batch, &loss);
    }
    [[nodiscard]] ps_status backward()
    {
        return ps_backward(get());
    }
    [[nodiscard]] ps_status step()
    {
        return ps_step(get());
    }
    [[nodiscard]] ps_status evaluate(const ps_batch &batch, float &loss)
    {
        return ps_evaluate(get(), &batch, &loss);
    }
    /* These cannot fail, as struct_size is set. */
    ps_step_info step_info() const
    {
        auto info = sized<ps_step_info>();
        (void)ps_engine_get_step_info(get(), &info);
        return info;
    }
    ps_memory_info memory_info() const
    {
        auto info = sized<ps_memory_info>();
        (void)ps_engine_get_memory_info(get(), &info);
        return info;
    }
    [[nodiscard]] ps_status memory_stats(std::string &out) const
    {
        char *text = nullptr;
        const ps_status st = ps_engine_dump_memory(get(), &text);
        return take_text(st, text, out);
    }
    [[nodiscard]] ps_status weights_xxh3(std::uint64_t &hash)
    {
        return ps_engine_get_weights_xxh3(get(), &hash);
    }
    [[nodiscard]] ps_status save_checkpoint(const std::string &folder, const std::string &caller_json = "")
    {
        return ps_engine_save_checkpoint(get(), folder.c_str(), caller_json.empty() ? nullptr : caller_json.c_str(),
                                         nullptr);
    }
    /* caller_json: "" where the checkpoint has none. */
    [[nodiscard]] ps_status load_checkpoint(const std::string &folder, std::string &caller_json)
    {
        char *text = nullptr;
        caller_json.clear();
        const ps_status st = ps_engine_load_checkpoint(get(), folder.c_str(), &text);
        return take_text(st, text, caller_json);
    }

  private:
    template <typename Model>
    static ps_status make(detail::initializer f, const config &c, Model &&model, engine &out, int local_rank)
    {
        using callable = std::remove_reference_t<Model>;
        if constexpr (std::is_function_v<callable>) {
            auto *function = &model;
            return make(f, c, function, out, local_rank);
        } else {
            ps_engine *e = nullptr;
            const ps_status st = f(detail::run_model<callable>, const_cast<std::remove_const_t<callable> *>(&model),
                                   local_rank, c.get(), &e);
            out.reset(e);
            return st;
        }
    }
    static ps_status make(detail::initializer f, const config &c, engine &out, int local_rank)
    {
        ps_engine *e = nullptr;
        const ps_status st = f(ps_model_from_config, c.get(), local_rank, c.get(), &e);
        out.reset(e);
        return st;
    }
};

/* A block of a model, from here to the end of the scope. */
class block
{
  public:
    block(ps_builder *b, const std::string &name, bool checkpoint = true) : builder_(b)
    {
        ps_begin_block(b, name.c_str(), checkpoint);
    }
    ~block()
    {
        ps_end_block(builder_);
    }
    block(const block &) = delete;
    block &operator=(const block &) = delete;

  private:
    ps_builder *builder_;
};

} // namespace patrickstar

#endif
