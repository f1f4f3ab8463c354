//! A login and the parts of a copy that use it.

use std::{
    env, io,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use tokio::{task::spawn_local, time::interval};

use crate::{
    CopyError, Job, Report,
    bottleneck::{Bottleneck, FAST_CIPHER, REACHED_SHARE, Seen, judge},
    carrier::Carrier,
    channel::Channel,
    error::{Error, Result},
    governor::{Bounds, Governor, TICK},
    host_sampler::{HostSampler, Tick},
    journal::{RunLock, open_state},
    options::{CarryOptions, Direction},
    passwordless::PasswordlessLogins,
    pool::Pool,
    ssh::Login,
};

/// The parts of a copy after the first login.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) pool: Rc<Pool>,
    pub(crate) carrier: Rc<Carrier>,
    sampler: Rc<HostSampler>,
    pub(crate) first: Rc<Channel>,
    /// The name of the other machine.
    pub(crate) machine: String,
    pub(crate) began: Instant,
    pub(crate) login_s: f64,
    /// The lock on this run's journals and partial files.
    pub(crate) run_lock: Option<RunLock>,
}

impl Session {
    pub(crate) async fn login(
        job: &Job,
        host: kernel::ssh::Login,
        direction: Direction,
        stop: &AtomicBool,
    ) -> Result<Self, CopyError> {
        let began = Instant::now();
        let path = job.state.as_ref().filter(|_| !job.dry_run);
        let state = path.map(|path| open_state(path)).transpose();
        let journals = state.as_ref().ok().and_then(Clone::clone).filter(|_| job.resume);
        let run_lock = journals.as_ref().map(|folder| RunLock::take(folder, &command(job))).transpose();
        // Without write access, or in another user's folder, a copy cannot be resumed.
        let unwritable = state.as_ref().err().filter(|_| job.resume).or(run_lock.as_ref().err());
        let is_told = |error: &io::Error| {
            error.kind() == io::ErrorKind::Other
                || !path.is_some_and(|path| matches!(path.try_exists(), Ok(false)))
        };
        let unwritable = unwritable.filter(|error| is_told(error)).map(ToString::to_string);
        let (state, run_lock) = (state.ok().flatten(), run_lock.ok().flatten());
        let failed = |why: String| CopyError::Failed(why);
        let drawn = kernel::random_hex()
            .map_err(|error| failed(format!("cannot get random numbers from the kernel: {error}")))?;
        let of_run = |what: fn(&RunLock) -> &String| run_lock.as_ref().map_or(&drawn, what).clone();
        let options = CarryOptions {
            token: of_run(|run_lock| &run_lock.token),
            secret: of_run(|run_lock| &run_lock.secret),
            former_secrets: run_lock.as_ref().map_or_else(Vec::new, |run| run.former_secrets.clone()),
            direction,
            preserve: job.preserve,
            verify: job.verify,
            sync: job.sync,
            journals: journals.filter(|_| run_lock.is_some()),
            machine: format!("{}:{}", host.name(), host.port().unwrap_or(0)),
        };
        let governor = Governor::new(
            Bounds::path(job.in_flight_bytes),
            job.limit_bytes_per_s,
            direction == Direction::Down,
        );
        let carrier = Carrier::new(options, governor);
        if let (Some(path), Some(error)) = (path, unwritable) {
            carrier.warn_of_journal(path, &error);
        }
        let sampler = HostSampler::new(direction == Direction::Down);
        let login = unless_stopped(stop, Login::new(host, job.ssh_options.clone())).await?;
        let machine = login.name().to_owned();
        let passwordless = PasswordlessLogins::of(state, &login);
        let pool = Pool::new(login, passwordless, Rc::clone(&carrier), Rc::clone(&sampler))
            .map_err(|error| failed(format!("cannot make a folder for ssh's sockets in /tmp: {error}")))?;
        let first =
            unless_stopped(stop, pool.first(connections(job))).await?.map_err(|error| match error {
                Error::Lost(why) => CopyError::Login { machine: machine.clone(), why },
                error => failed(error.to_string()),
            })?;
        let login_s = began.elapsed().as_secs_f64();
        Ok(Self { pool, carrier, sampler, first, machine, began, login_s, run_lock })
    }

    /// Measures the round-trip time, begins the number of logins that it requires, and requests the folder to which
    /// paths are relative.
    ///
    /// # Errors
    /// If the first connection is lost.
    pub(crate) async fn measure(&self, job: &Job) -> Result {
        let (round_trip, home) = tokio::join!(self.first.ask_limits(), self.first.real_path(b"."));
        self.carrier.governor.saw_round_trip(round_trip?);
        if let Ok(home) = Error::unless_lost(home)? {
            self.carrier.hashers.begin_in(home);
        }
        if !job.dry_run {
            self.pool.start_others(connections(job));
        }
        Ok(())
    }

    pub(crate) fn error(&self, error: &Error) -> CopyError {
        CopyError::Failed(format!("{}: {error}", self.machine))
    }

    /// Carries files until all work is done or the copy is stopped. `on_tick` is called ten times a second and may also
    /// end the copy.
    pub(crate) async fn carry(
        &self,
        job: &Job,
        stop: &AtomicBool,
        report: &mut Report,
        on_tick: &mut dyn FnMut() -> bool,
    ) {
        let Self { pool, carrier, sampler, .. } = self;
        let (governor, queue) = (&carrier.governor, &carrier.queue);
        pool.start(Rc::clone(&self.first), connections(job));
        let began = Instant::now();
        spawn_local(Rc::clone(sampler).watch_here());
        let mut second = Second(Instant::now(), 0);
        let mut in_flight_bytes = 0;
        let mut has_reached_limit = false;
        let mut ticks = interval(TICK);
        loop {
            tokio::select! {
                () = queue.all_finished() => break,
                _ = ticks.tick() => {}
            }
            let now = Instant::now();
            governor.tick(now, 0);
            queue.expect(governor.rate(), governor.round_trip());
            if carrier.options.direction == Direction::Up {
                carrier.hashers.expect(governor.rate(), governor.round_trip());
            }
            let bound_bytes = pool.bound_bytes().min(governor.bound_bytes());
            in_flight_bytes = if bound_bytes > 0 { bound_bytes } else { in_flight_bytes };
            let delivered_bytes = governor.delivered_bytes();
            // Once the rate limit is reached, more connections would not make the copy faster.
            let enough = job.limit_bytes_per_s.map(|limit| REACHED_SHARE * limit as f64);
            has_reached_limit |= enough.is_some_and(|enough| governor.rate() >= enough);
            sampler.tick(
                now,
                &Tick {
                    is_steady: queue.has_more() && (has_reached_limit || pool.is_complete()),
                    delivered_bytes,
                    full_channels_share: if governor.is_full() { 1.0 } else { pool.full_share() },
                    is_path_full: governor.is_full(),
                    are_files_small: queue.is_small(),
                },
            );
            report.rate_bytes_per_s.extend(second.rate(delivered_bytes));
            report.is_interrupted = stop.load(Ordering::Relaxed);
            if on_tick() || report.is_interrupted {
                queue.close();
                break;
            }
        }
        report.carried_bytes = governor.delivered_bytes();
        report.in_flight_bytes = in_flight_bytes as u64;
        report.round_trip_s = governor.round_trip().as_secs_f64();
        report.login_s = self.login_s;
        report.no_checksum_because = carrier.hashers.why_not();
        (report.connections, report.channels) = pool.most();
        (report.here, report.there) = (Some(self.sampler.here()), self.sampler.there());
        report.held_back = self.held_back(job, report, began.elapsed());
    }

    fn held_back(&self, job: &Job, report: &Report, elapsed: Duration) -> Option<Bottleneck> {
        let here = report.here.as_ref().filter(|_| report.carried_bytes > 0)?;
        let steady = self.sampler.steady();
        Some(judge(&Seen {
            direction: self.carrier.options.direction,
            machine: &self.machine,
            here,
            there: report.there.as_ref(),
            rate: steady.rate(),
            limit: job.limit_bytes_per_s,
            in_flight: job.in_flight_bytes.map(|bytes| (bytes, steady.full_path_share())),
            full_channels_share: steady.full_channels_share(),
            channels: report.channels,
            connections: report.connections,
            round_trip_s: report.round_trip_s,
            are_files_small: steady.were_files_small(),
            has_files: !self.carrier.queue.is_endless(),
            is_direct: self.sampler.is_direct(),
            sums_share: self.carrier.hashers.busy_share(elapsed),
            has_fast_cipher: job
                .ssh_options
                .iter()
                .any(|option| option.to_string_lossy().contains(FAST_CIPHER)),
        }))
    }
}

/// Identifies a command, so that the next run of the same command continues where this one stopped.
fn command(job: &Job) -> String {
    format!("{:?}\0{:?}\0{:?}", env::current_dir().ok(), job.sources, job.destination)
}

/// Number of connections that the user chose; none if the user did not choose.
fn connections(job: &Job) -> Option<u32> {
    if job.is_polite { Some(1) } else { job.connections }
}

/// Runs a future until it ends or `stop` is set.
pub(crate) async fn unless_stopped<T>(
    stop: &AtomicBool,
    what: impl Future<Output = T>,
) -> Result<T, CopyError> {
    let stopped = async {
        let mut ticks = interval(TICK);
        while !stop.load(Ordering::Relaxed) {
            ticks.tick().await;
        }
    };
    tokio::select! {
        biased;
        () = stopped => Err(CopyError::Interrupted),
        // The signal that stops the copy may have ended `ssh` too, so an error may only be its consequence.
        done = what => if stop.load(Ordering::Relaxed) { Err(CopyError::Interrupted) } else { Ok(done) },
    }
}

/// A second in which the rate is measured: its start, and the number of bytes that had arrived by then.
struct Second(Instant, u64);

impl Second {
    /// If the second is over, returns its rate and begins the next one.
    fn rate(&mut self, delivered_bytes: u64) -> Option<f64> {
        let (elapsed, bytes) = (self.0.elapsed(), delivered_bytes - self.1);
        (elapsed >= Duration::from_secs(1)).then(|| {
            *self = Self(Instant::now(), delivered_bytes);
            bytes as f64 / elapsed.as_secs_f64()
        })
    }
}
