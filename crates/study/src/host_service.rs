//! The machine's side: the agent answers questions by bringing up one host of the study.

use std::{net::IpAddr, path::Path, time::Duration};

use fleet::HostQuestions;
use kernel::{
    leftovers,
    netlink::{LOOPBACK, Netlink},
    watch::Watch,
};
use lab::{
    HostHandle, Lab,
    plan::{Plan, Program},
};
use rustix::process::geteuid;
use serde::Serialize;
use serde_json::Value;

use crate::{
    actions, balancer_observer,
    counted::this_machine,
    machines::{Facts, Failure, Farewell, OWN_PROGRAM, Question},
    study::ActionKind,
    testbed::with_target_folders,
};

/// Name of the folder for the files that the host's processes store, within the folder of its lab.
const STORED_FOLDER: &str = "stored";

/// Number of bytes of a log that are sent to the controller.
const LOG_BYTES: usize = 2 << 20;

/// Answers a controller's questions until it is gone, then takes the host down. `reached`: the address of this machine that
/// the controller has reached.
pub fn serve(questions: HostQuestions, reached: Option<IpAddr>) {
    let mut options = lab::Options::new();
    if let Ok(options) = &mut options {
        options.stop = questions.stop.clone();
        options.on_machine = true;
    }
    let mut service =
        Service { options: options.map_err(|error| error.to_string()), reached, lab: None, watch: None };
    questions.answer_all(|question| service.answer(question));
    service.take_down();
}

/// This machine as a host.
struct Service {
    options: Result<lab::Options, String>,
    reached: Option<IpAddr>,
    lab: Option<Lab>,
    watch: Option<Watch>,
}

impl Service {
    fn answer(&mut self, question: Value) -> Result<Value, String> {
        let question = serde_json::from_value(question)
            .map_err(|error| format!("the agent cannot read the question: {error}"))?;
        match question {
            Question::Facts => in_json(facts(self.reached)?),
            Question::Up { plan, secrets } => {
                secrets.iter().for_each(|(text, shown)| secrets::mask::learn_text(text, shown));
                in_json(self.bring_up(*plan)?)
            }
            Question::Stage(stage) => {
                in_json(self.lab()?.start_stage(stage).map_err(|error| error.to_string())?)
            }
            Question::Failures => {
                let lab = self.lab()?;
                let failures = std::iter::from_fn(|| lab.watch(Duration::ZERO).map(Failure::from));
                in_json(failures.collect::<Vec<_>>())
            }
            Question::Leftovers => in_json(leftovers::here().map_err(|error| error.to_string())?),
            Question::Watch { books_time } => {
                let watch = this_machine().and_then(|host| Watch::start(vec![host], &[], books_time));
                self.watch = Some(watch.map_err(|error| error.to_string())?);
                in_json(())
            }
            Question::Count => {
                let watch = self.watch.take().ok_or("its kernel was not watched")?;
                in_json(watch.stop().map_err(|error| error.to_string())?)
            }
            Question::Act(what) => {
                let program = self.options.as_ref().map_err(Clone::clone)?.program.display().to_string();
                let what = match what {
                    ActionKind::Command(words) => ActionKind::Command(
                        words.iter().map(|word| word.replace(OWN_PROGRAM, &program)).collect(),
                    ),
                    other => other,
                };
                in_json(actions::act(self.host()?, &what)?)
            }
            Question::Balancer(balancer, question) => {
                in_json(balancer_observer::answer(self.host()?, &balancer, question)?)
            }
            Question::Down => {
                let mut farewell = self.take_down();
                // An earlier agent on this machine may have been killed.
                farewell.failures.extend(self.clean().err());
                in_json(farewell)
            }
        }
    }

    fn bring_up(&mut self, plan: Plan) -> Result<(), String> {
        self.take_down();
        lab::ensure_own_proc().map_err(|error| error.to_string())?;
        self.clean()?;
        let options = self.options.as_ref().map_err(Clone::clone)?;
        let program = options.program.display().to_string();
        let place = |plan: &Plan, folder: &Path| {
            let mut plan = with_target_folders(plan, &folder.join(STORED_FOLDER));
            for process in &mut plan.processes {
                if let Program::Command(words) = &mut process.program {
                    words.iter_mut().for_each(|word| *word = word.replace(OWN_PROGRAM, &program));
                }
            }
            plan
        };
        self.lab = Some(Lab::up_in_folder(&plan, options, &place).map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Undoes what killed runs left.
    fn clean(&self) -> Result<(), String> {
        let options = self.options.as_ref().map_err(Clone::clone)?;
        let cleaned = undo::clean(&options.folder).map_err(|error| error.to_string())?;
        // What another program has changed meanwhile stays as it is.
        let mut failures =
            cleaned.failures.iter().filter(|failure| !matches!(failure, undo::Error::Foreign { .. }));
        match failures.next() {
            Some(failure) => Err(format!("what a killed run left could not be undone: {failure}")),
            None => Ok(()),
        }
    }

    fn lab(&mut self) -> Result<&mut Lab, String> {
        self.lab.as_mut().ok_or_else(|| "the host is not up".to_owned())
    }

    fn host(&mut self) -> Result<HostHandle<'_>, String> {
        self.lab()?.hosts().next().ok_or_else(|| "the host is not up".to_owned())
    }

    fn take_down(&mut self) -> Farewell {
        self.watch = None;
        let (logs, failures) = self.lab.take().map(Lab::down_with_logs).unwrap_or_default();
        let failures = failures.iter().map(ToString::to_string).collect();
        let logs = logs.into_iter().map(|(name, text)| (name, shortened(text))).collect();
        Farewell { logs, failures }
    }
}

/// The beginning and the end of a log that is too long to be sent.
fn shortened(text: String) -> String {
    if text.len() <= LOG_BYTES {
        return text;
    }
    let half = LOG_BYTES / 2;
    let boundary = |mut at: usize| {
        while !text.is_char_boundary(at) {
            at += 1;
        }
        at
    };
    let (begin, end) = (boundary(half), boundary(text.len() - half));
    format!("{}\n[{} bytes are left out]\n{}", &text[..begin], end - begin, &text[end..])
}

fn in_json(answer: impl Serialize) -> Result<Value, String> {
    serde_json::to_value(answer).map_err(|error| error.to_string())
}

fn facts(reached: Option<IpAddr>) -> Result<Facts, String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| format!("cannot read {what}: {error}")
    };
    let network = undo::Network::own().map_err(failed("the network namespace"))?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(failed("the boot's id"))?;
    let mut netlink = Netlink::open().map_err(failed("the addresses"))?;
    let links = netlink.links().map_err(failed("the interfaces"))?;
    let addresses = netlink.addresses().map_err(failed("the addresses"))?;
    let named = addresses.into_iter().filter(|address| address.index != LOOPBACK).filter_map(|address| {
        let link = links.iter().find(|link| link.index == address.index)?;
        Some((link.name.clone(), address.address))
    });
    Ok(Facts {
        identity: format!("{} {}", boot.trim(), network.number()),
        is_root: geteuid().is_root(),
        addresses: named.collect(),
        reached: reached.map(|reached| reached.to_canonical()),
    })
}
