//! Threads under the scheduler. What a scheduled thread starts is scheduled.

pub use std::thread::{Thread, current, panicking};

use super::context::{Context, Place, cost, current as me, point};
use super::scheduler::{Key, Scheduler, Status, Wait};
use std::any::Any;
use std::cell::RefCell;
use std::io::Result;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

/// A number for the calling thread; the threads of a run are numbered in the order of their making.
pub fn number() -> usize {
    match me() {
        Some(me) => me.number,
        None => super::super::real::thread::number(),
    }
}

/// How many processors there are.
pub fn available_parallelism() -> Result<NonZeroUsize> {
    match me() {
        Some(me) => {
            let processors = me.scheduler.state().policy().processors;
            Ok(NonZeroUsize::new(processors).unwrap_or(NonZeroUsize::MIN))
        }
        None => std::thread::available_parallelism(),
    }
}

/// Waits for a while.
#[track_caller]
pub fn sleep(time: Duration) {
    let Some(me) = me() else {
        return std::thread::sleep(time);
    };
    let deadline = super::Instant::now() + time;
    let wait = Wait {
        key: Key::Sleep,
        deadline: Some(deadline.nanos()),
        token: 0,
        at: Location::caller(),
    };
    me.scheduler.block(&me, wait);
}

/// Lets others run.
#[track_caller]
pub fn yield_now() {
    match me() {
        Some(me) => me.scheduler.give_way(&me, Location::caller()),
        None => std::thread::yield_now(),
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "something that is no text".to_owned())
}

/// The life of a scheduled thread.
fn live<T>(me: &Arc<Context>, body: impl FnOnce() -> T) -> T {
    me.enter();
    let result = catch_unwind(AssertUnwindSafe(body));
    Context::leave();
    let panic = result.as_ref().err().map(|panic| message(&**panic));
    me.scheduler.end(me, panic, Location::caller());
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Starts the first thread of a run, which waits for its turn.
pub(super) fn spawn_first<T: Send + 'static>(
    scheduler: &Arc<Scheduler>,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<std::thread::JoinHandle<T>> {
    let name = std::thread::current().name().unwrap_or("main").to_owned();
    let child = scheduler.register(name.clone());
    let handle = Builder::new().name(name).spawn({
        let child = child.clone();
        move || live(&child, body)
    })?;
    scheduler.started(child.number, handle.thread().clone());
    Ok(handle)
}

/// Waits for the end of a scheduled thread.
fn await_end(me: &Context, number: usize, at: Place) {
    loop {
        if matches!(me.scheduler.state().threads[number].status, Status::Ended) {
            return;
        }
        let wait = Wait {
            key: Key::End(number),
            deadline: None,
            token: 0,
            at,
        };
        me.scheduler.block(me, wait);
    }
}

/// A thread, whose end can be waited for.
#[derive(Debug)]
pub struct JoinHandle<T> {
    inner: std::thread::JoinHandle<T>,
    /// Its number, if it is scheduled.
    number: Option<usize>,
}

impl<T> JoinHandle<T> {
    /// Waits for its end; the error is its panic.
    #[track_caller]
    pub fn join(self) -> std::thread::Result<T> {
        if let (Some(me), Some(number)) = (me(), self.number) {
            await_end(&me, number, Location::caller());
        }
        self.inner.join()
    }

    /// The thread.
    pub fn thread(&self) -> &std::thread::Thread {
        self.inner.thread()
    }
}

/// Starts a thread.
#[track_caller]
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let name = name.into();
    let builder = Builder::new().name(name.clone());
    let Some(me) = me() else {
        let inner = builder.spawn(body)?;
        return Ok(JoinHandle {
            inner,
            number: None,
        });
    };
    let child = me.scheduler.register(name);
    let number = child.number;
    let inner = builder
        .spawn(move || live(&child, body))
        .inspect_err(|_| me.scheduler.not_started(number))?;
    me.scheduler.started(number, inner.thread().clone());
    point(cost::LOCK);
    Ok(JoinHandle {
        inner,
        number: Some(number),
    })
}

/// Where threads are started that end before [`scope`] returns.
#[derive(Debug)]
pub struct Scope<'scope, 'env> {
    inner: &'scope std::thread::Scope<'scope, 'env>,
    numbers: RefCell<Vec<usize>>,
}

/// Lets `f` start threads that borrow what the caller has, and waits for their ends.
#[track_caller]
pub fn scope<'env, T>(f: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> T) -> T {
    let at = Location::caller();
    std::thread::scope(|inner| {
        let scope = Scope {
            inner,
            numbers: RefCell::default(),
        };
        let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
        if let Some(me) = me() {
            for number in scope.numbers.take() {
                await_end(&me, number, at);
            }
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    #[track_caller]
    pub fn spawn(
        &self,
        name: impl Into<String>,
        body: impl FnOnce() + Send + 'scope,
    ) -> Result<()> {
        let name = name.into();
        let builder = Builder::new().name(name.clone());
        let Some(me) = me() else {
            return builder.spawn_scoped(self.inner, body).map(drop);
        };
        let child = me.scheduler.register(name);
        let number = child.number;
        let handle = builder
            .spawn_scoped(self.inner, move || live(&child, body))
            .inspect_err(|_| me.scheduler.not_started(number))?;
        me.scheduler.started(number, handle.thread().clone());
        self.numbers.borrow_mut().push(number);
        point(cost::LOCK);
        Ok(())
    }
}
