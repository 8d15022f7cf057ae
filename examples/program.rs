// program.rs - a training run from Rust, over the C interface alone (doc/bindings.md).
//
//     rustc -O program.rs -l dylib=patrickstar
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr::null_mut;

#[repr(C)]
struct Config([u8; 0]); // opaque
#[repr(C)]
struct Engine([u8; 0]);
#[repr(C)]
struct Builder([u8; 0]);

#[repr(C)]
struct Batch {
    struct_size: usize,
    tokens: *const i32,
    targets: *const i32,
    attention_mask: *const i32,
    token_type_ids: *const i32,
    values: *const f32,
}

type ModelFunc = extern "C" fn(*mut Builder, *mut c_void) -> c_int;

extern "C" {
    fn ps_last_error() -> *const c_char;
    fn ps_config_parse(text: *const c_char, name: *const c_char, out: *mut *mut Config) -> c_int;
    fn ps_config_destroy(config: *mut Config);
    fn ps_model_from_config(b: *mut Builder, user: *mut c_void) -> c_int;
    fn ps_initialize_engine(model: ModelFunc, user: *mut c_void, local_rank: c_int, config: *const Config, out: *mut *mut Engine) -> c_int;
    fn ps_engine_destroy(engine: *mut Engine);
    fn ps_forward(engine: *mut Engine, batch: *const Batch, loss: *mut f32) -> c_int;
    fn ps_backward(engine: *mut Engine) -> c_int;
    fn ps_step(engine: *mut Engine) -> c_int;
}

extern "C" fn model(b: *mut Builder, user: *mut c_void) -> c_int {
    unsafe { ps_model_from_config(b, user) }
}

fn check(status: c_int) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    Err(unsafe { CStr::from_ptr(ps_last_error()) }.to_string_lossy().into_owned())
}

fn main() -> Result<(), String> {
    let text = CString::new(r#"{"model": {"vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2},
        "memory": {"device": "16MB", "host": 0}}"#).unwrap();
    let name = CString::new("options").unwrap();
    let (mut config, mut engine): (*mut Config, *mut Engine) = (null_mut(), null_mut());
    let tokens: Vec<i32> = (0..16).map(|i| i * 7 % 64).collect();
    let targets: Vec<i32> = tokens.iter().map(|t| (t + 7) % 64).collect();
    let batch = Batch {
        struct_size: std::mem::size_of::<Batch>(),
        tokens: tokens.as_ptr(),
        targets: targets.as_ptr(),
        attention_mask: null_mut(),
        token_type_ids: null_mut(),
        values: null_mut(),
    };
    unsafe {
        check(ps_config_parse(text.as_ptr(), name.as_ptr(), &mut config))?;
        check(ps_initialize_engine(model, config.cast(), 0, config, &mut engine))?;
        for _ in 0..20 {
            let mut loss = 0f32;
            check(ps_forward(engine, &batch, &mut loss))?;
            check(ps_backward(engine))?;
            check(ps_step(engine))?;
            println!("loss {loss}");
        }
        ps_engine_destroy(engine);
        ps_config_destroy(config);
    }
    Ok(())
}
