//! Runs the measuring loop on virtual time for a fixed number of requests; `scripts/loop-cost.sh` counts its instructions.
//!
//! `loop-cost` prints the names of the loads. `loop-cost NAME` runs one and prints how many requests were completed.

use std::{
    convert::Infallible,
    env,
    sync::{Arc, atomic::AtomicBool, mpsc},
};

use anyhow::{Result, anyhow, bail, ensure};
use load::{
    Script, Share,
    exchange::{Exchange, Fixed, Numbered, RunningScript, Scripted},
    recorder::Recorder,
    request::RequestBytes,
    wire::simulated::{Action, SimulatedWire, Target},
    worker::{Finished, Worker},
};
use record::{
    Distribution, HttpPlan, LoadModel, Request, RequestPlan, ScriptPlan, StatusSet, StepPlan, TextRequest,
};
use testing::plans;

/// The loads whose instructions are counted. `templates` is for a stopwatch: its clock does not run under valgrind.
const LOADS: [&str; 4] = ["closed", "open", "pipelined", "events"];
/// Number of requests of each load.
const REQUESTS: u64 = 20_000;
const MS: u64 = 1_000_000;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nServer: simulated\r\nContent-Length: 5\r\n\r\nhello";
const RECEIPT: &[u8] = b"HTTP/1.1 204 No Content\r\n\
    Proofload-Receipt: segment=\"a\"; offset=1; bytes=2; level=written\r\n\r\n";

/// A target that answers after 0.5 to 1.5 ms, evenly distributed.
struct Uneven(&'static [u8]);

impl Target for Uneven {
    fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Action)> {
        let after_ns = MS / 2 + n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % MS;
        vec![(now_ns + after_ns, Action::Send(self.0.to_vec()))]
    }
}

fn main() -> Result<()> {
    let Some(load) = env::args().nth(1) else {
        println!("{}", LOADS.join("\n"));
        return Ok(());
    };
    let (ticks, _ticks) = mpsc::channel();
    let (_spares, spare) = mpsc::channel();
    let plan = Arc::new(plan(&load)?);
    let (recorder, stop) = (Recorder::new(0, ticks, spare, &plan), Arc::new(AtomicBool::new(false)));
    let target = Uneven(if plan.events.is_some() { RECEIPT } else { ANSWER });
    let request_bytes = RequestBytes::new(&plan).length();
    let wire = |slots| Ok::<_, Infallible>(SimulatedWire::new(target, request_bytes, slots));
    let script = plan.script.as_ref().map(|script| Script::new(script, true, false));
    let script = script.transpose().map_err(|mistakes| anyhow!("{mistakes:?}"))?.map(RunningScript::new);
    let Finished { result, .. } = if script.is_some() {
        let Ok(mut worker) =
            Worker::<_, Scripted>::new(plan, Share::WHOLE, script.as_ref(), recorder, stop, wire);
        worker.prepare();
        run_counted(worker)
    } else if plan.events.is_some() {
        let Ok(mut worker) = Worker::<_, Numbered>::new(plan, Share::WHOLE, None, recorder, stop, wire);
        worker.prepare();
        run_counted(worker)
    } else {
        let Ok(mut worker) = Worker::<_, Fixed>::new(plan, Share::WHOLE, None, recorder, stop, wire);
        worker.prepare();
        run_counted(worker)
    };
    let completed = result.http.counts.completed;
    ensure!(completed == REQUESTS, "{completed} of {REQUESTS} requests were completed");
    println!("{completed}");
    Ok(())
}

/// The script counts the instructions of this function and finds it by its name.
#[inline(never)]
fn run_counted<X: Exchange>(worker: Worker<SimulatedWire<Uneven>, X>) -> Finished<SimulatedWire<Uneven>> {
    let t0_ns = worker.now_ns() + MS;
    worker.run(t0_ns)
}

fn plan(load: &str) -> Result<HttpPlan> {
    let closed = |users| {
        let (loops, think_time) = (Some(REQUESTS / users), Distribution::Fixed { ns: 0 });
        let load = LoadModel::Closed { users, loops, ramp_up_ns: 0, think_time };
        HttpPlan { load, ..plans::closed(users) }
    };
    Ok(match load {
        "closed" => closed(50),
        "open" => plans::open(REQUESTS as f64 / 2.0, 2, 250),
        "pipelined" => HttpPlan { pipeline: 8, ..closed(20) },
        "templates" => templates(closed(50)),
        "events" => HttpPlan { events: Some(plans::events()), ..closed(50) },
        other => bail!("no load '{other}'; there are {}", LOADS.join(", ")),
    })
}

/// The plan with a request of three templates. The request of the plan itself has the length of what they become.
fn templates(plan: HttpPlan) -> HttpPlan {
    let with_target = |target: &str| Request { target: target.to_owned(), ..plan.request.clone() };
    let request = with_target("/items/{{time_ms}}/{{hex 8}}/{{string 8}}");
    let request = TextRequest::written(&request).expect("every brace is closed");
    let step = StepPlan::once("items", RequestPlan::new(request, StatusSet::success()).into());
    let script = Some(ScriptPlan { steps: vec![step], ..ScriptPlan::default() });
    HttpPlan { request: with_target("/items/1800000000123/01234567/abcdefgh"), script, ..plan.clone() }
}
