//! Panics become failures, and print nothing while they are being caught.

use crate::{Failure, Status};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The default hook prints to stderr, which a library must not do; outside of our calls the former hook stays in force.
fn install_hook() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let former = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if INSIDE.try_with(Cell::get).unwrap_or(false) {
                let _ = MESSAGE.try_with(|m| *m.borrow_mut() = text_of(info.payload()));
            } else {
                former(info);
            }
        }));
    });
}

/// Without the place, which names a file of the machine that built this library.
fn text_of(payload: &dyn Any) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or(payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message").to_string()
}

pub fn catch<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    install_hook();
    let outer = INSIDE.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(body));
    INSIDE.set(outer);
    result.unwrap_or_else(|_| {
        let message = MESSAGE.with(|m| std::mem::take(&mut *m.borrow_mut()));
        Err(Failure::new(Status::Internal, format!("a panic was caught: {message}")))
    })
}
