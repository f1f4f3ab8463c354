//! A trial as text: validity first, then counts, times, failures and the generator's own use of
//! resources.

use std::fmt::Write;

use record::{
    Cause, CensoredTimes, ErrorClass, ErrorCounts, Histogram, HttpTrial, Iterations, LoadModel, Trial,
    Validity, Verdict, Warning,
    percentile::columns,
    units::{show_bytes, show_count, show_rate, show_time_ns},
};

use super::marked;

pub(crate) fn render(trial: &Trial) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut text, trial);
    text
}

fn write_all(out: &mut String, trial: &Trial) -> std::fmt::Result {
    let Some(http) = trial.http() else { return Ok(()) };
    let (status, sentence) = report::trial_answer(trial, http);
    writeln!(out, "{sentence}\n")?;
    match http.plan.script.as_ref().filter(|script| script.is_session()) {
        Some(_) => writeln!(out, "{}", http.plan.url)?,
        None => writeln!(out, "{} {}", http.plan.request.method, http.plan.url)?,
    }
    writeln!(out, "  {}", plan_line(http))?;
    for name in http.plan.connection.names.iter().filter(|name| !name.used.is_empty()) {
        writeln!(out, "  {}", name.in_words())?;
    }
    if trial.interrupted {
        writeln!(out, "\nINTERRUPTED after {:.1} s: the figures cover this time.", trial.elapsed_s)?;
    }
    write_validity(out, trial)?;
    write_verdict(out, trial)?;
    write_counts(out, trial, http)?;
    write_times(out, http)?;
    write_steps(out, http)?;
    write_failures(out, http)?;
    write_generator(out, http)?;
    write_machines(out, http)?;
    for warning in trial.warnings.iter().filter(|warning| Some(*warning) != trust(trial)) {
        writeln!(out, "\nWarning: {}.", warning.message)?;
    }
    writeln!(out, "\nGoal: every planned request completed and no connection failed: {}.", status.word())
}

fn plan_line(http: &HttpTrial) -> String {
    let plan = &http.plan;
    let mut parts = Vec::new();
    match &plan.load {
        LoadModel::Closed { users, loops, ramp_up_ns, think_time } => {
            parts.push(format!("closed load: {} users", show_count(*users)));
            parts.extend(loops.map(|n| format!("{} loops", show_count(n))));
            if *ramp_up_ns > 0 {
                parts.push(format!("ramp-up {}", show_time_ns(*ramp_up_ns)));
            }
            if !think_time.is_zero() {
                parts.push(format!("think time {think_time}"));
            }
        }
        LoadModel::Open { arrivals, stages, connections } => {
            let stages: Vec<String> = stages
                .iter()
                .map(|s| match (s.from_rate_per_s, s.to_rate_per_s) {
                    (from, to) if from == to => show_rate(from),
                    (from, to) => format!("{} to {}", show_rate(from), show_rate(to)),
                })
                .collect();
            let spacing = format!("{arrivals:?}").to_lowercase();
            parts.push(format!("open load: {} ({spacing})", stages.join(", then ")));
            parts.push(match connections.initial {
                0 => format!("connections on demand, up to {}", show_count(connections.most)),
                n => format!("{} connections", show_count(n)),
            });
        }
    }
    parts.extend(plan.duration_ns.map(show_time_ns));
    parts.extend(plan.requests.map(|n| format!("{} requests", show_count(n))));
    if !plan.keepalive {
        parts.push("a connection per request".to_owned());
    }
    if let Some(events) = &plan.events {
        parts.push(match events.per_request {
            1 => "numbered events".to_owned(),
            n => format!("{} numbered events per request", show_count(n.into())),
        });
        if events.retries > 0 {
            parts.push(format!("up to {} retries", events.retries));
        }
    }
    if let Some(script) = &plan.script {
        let feeders = script.feeders.iter().map(|feeder| format!("rows of {}", feeder.file));
        parts.extend(feeders);
        if script.redirects > 0 {
            parts.push(format!("up to {} redirects", script.redirects));
        }
    }
    if plan.pipeline > 1 {
        parts.push(format!("pipeline {}", plan.pipeline));
    }
    parts.push(format!("{} thread(s)", http.cpu.threads));
    if plan.processes > 1 {
        parts.push(format!("{} processes", plan.processes));
    }
    parts.join(", ")
}

fn write_validity(out: &mut String, trial: &Trial) -> std::fmt::Result {
    match &trial.validity {
        // This line says how far the reader can trust the figures.
        Validity::Valid => match trust(trial) {
            Some(warning) => writeln!(out, "\nValid: {}.", warning.message),
            None => writeln!(out, "\nValid: no sign that the generator was the limit."),
        },
        Validity::Void { reasons } => {
            writeln!(out, "\nVOID: nothing may be concluded about the target.")?;
            reasons.iter().try_for_each(|reason| writeln!(out, "  - {}", reason.evidence))
        }
    }
}

/// The warning that limits the trust in the figures of a valid trial; `None` if there is none.
fn trust(trial: &Trial) -> Option<&Warning> {
    let of = |code: &&str| trial.warnings.iter().find(|warning| warning.code == *code);
    ["cpu_exhausted", "generator_away"].iter().filter(|_| !trial.validity.is_void()).find_map(of)
}

fn write_verdict(out: &mut String, trial: &Trial) -> std::fmt::Result {
    let Some(verdict) = trial.verdict.as_ref().filter(|_| !trial.validity.is_void()) else { return Ok(()) };
    let words = verdict.in_words().unwrap_or_else(|| "the bottleneck is not determined".to_owned());
    let (first, rest) = words.split_at(1);
    writeln!(out, "{}{rest}.", first.to_uppercase())?;
    for next in verdict.bottlenecks.iter().skip(1) {
        writeln!(out, "  also {}: {}", next.cause.words(), next.evidence)?;
    }
    if let Some(cause) = verdict.first_cause().filter(|cause| *cause != Cause::OfferedLoad) {
        writeln!(out, "  what may raise it: {}", cause.raised_by())?;
    }
    Ok(())
}

fn write_counts(out: &mut String, trial: &Trial, http: &HttpTrial) -> std::fmt::Result {
    let elapsed_s = trial.elapsed_s;
    let c = &http.counts;
    let connect_failures =
        |errors: &ErrorCounts| errors.connect_failures() - errors.of(ErrorClass::ClosedUnused);
    let errors = [&http.errors, &http.retried_errors, &http.connection_errors];
    let unopened = c.connections_unopened + errors.into_iter().map(connect_failures).sum::<u64>();
    let hung = if c.hung > 0 { format!(", {} of them hung", show_count(c.hung)) } else { String::new() };
    writeln!(
        out,
        "\nRequests     {} scheduled, {} sent, {} completed, {} failed, {} never sent, {} in flight at the end{hung}",
        show_count(c.scheduled),
        show_count(c.sent),
        show_count(c.completed),
        show_count(c.failed),
        show_count(c.never_sent),
        show_count(c.in_flight),
    )?;
    if c.retried > 0 {
        let (n, unsent) = (show_count(c.retried), show_count(c.retried_unsent));
        writeln!(
            out,
            "Retries      {n} failed attempts were retried, {unsent} of them before anything was sent"
        )?;
    }
    let per_s = |bytes: u64| show_bytes((bytes as f64 / elapsed_s.max(1e-9)) as u64);
    writeln!(out, "Throughput   {} over {:.2} s", http.throughput().in_words(show_rate), http.measured_s)?;
    writeln!(
        out,
        "Bytes        {} received ({}/s; bodies {}), {} sent ({}/s)",
        show_bytes(c.received_bytes),
        per_s(c.received_bytes),
        show_bytes(c.received_body_bytes),
        show_bytes(c.sent_bytes),
        per_s(c.sent_bytes),
    )?;
    writeln!(
        out,
        "Connections  {} opened, peak {}, {} reconnects, {} could not be opened",
        show_count(c.connections_opened),
        show_count(c.connections_peak),
        show_count(c.reconnects),
        show_count(unopened),
    )?;
    let account = trial.verdict.as_ref().map(Verdict::account_in_words).filter(|words| !words.is_empty());
    let users = account.unwrap_or_else(|| http.users_time.in_words());
    if !users.is_empty() {
        writeln!(out, "Users' time  {users}")?;
    }
    write_tls(out, http)
}

fn write_tls(out: &mut String, http: &HttpTrial) -> std::fmt::Result {
    let Some(tls) = &http.plan.tls else { return Ok(()) };
    let c = &http.counts;
    let resumed = match (tls.resumption, c.handshakes_resumed) {
        (false, _) => "none resumed (--no-resumption)".to_owned(),
        (true, 0) => "none resumed".to_owned(),
        (true, n) => format!("{} of them resumed a session", show_count(n)),
    };
    let tickets = show_count(c.session_tickets);
    let sessions = http.tls_sessions.iter();
    let sessions: Vec<String> = match http.tls_sessions.len() {
        0 | 1 => sessions.map(|(session, _)| session.clone()).collect(),
        _ => sessions.map(|(session, n)| format!("{session} ({})", show_count(*n))).collect(),
    };
    let unchecked = if tls.verify { "" } else { "; certificates not checked (--insecure)" };
    writeln!(
        out,
        "TLS          {} handshakes, {resumed}; {tickets} tickets; {}{unchecked}",
        show_count(c.handshakes),
        if sessions.is_empty() { "no session".to_owned() } else { sessions.join(", ") },
    )
}

fn write_times(out: &mut String, http: &HttpTrial) -> std::fmt::Result {
    if http.counts.completed == 0 && http.response_time.censored.is_empty() {
        return writeln!(out, "\nNo request was completed, so there are no times.");
    }
    let heads = ["mean"].into_iter().chain(columns().map(|column| column.name)).chain(["max"]);
    let mut rows = vec![(String::new(), heads.map(str::to_owned).collect())];
    rows.extend(censored_row("Response time", &http.response_time));
    let open = matches!(http.plan.load, LoadModel::Open { .. });
    if open {
        rows.extend(censored_row("Service time", &http.service_time));
    }
    rows.extend(histogram_row("First byte", &http.first_byte_time));
    rows.extend(histogram_row("Connect", &http.connect_time));
    rows.extend(histogram_row("TLS handshake", &http.handshake_time));
    if open {
        rows.extend(histogram_row("Lateness", &http.lateness));
        rows.extend(histogram_row("  of generator", &http.own_lateness));
    }
    writeln!(out)?;
    // A column may have intervals, which are wider than single values.
    let longest =
        |column: usize| rows.iter().map(|(_, times)| times[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].1.len()).map(|column| (longest(column) + 1).max(9)).collect();
    for (name, times) in &rows {
        let times = times.iter().zip(&widths).map(|(time, width)| format!("{time:>width$}"));
        writeln!(out, "{name:<15}{}", times.collect::<String>())?;
    }
    if open {
        writeln!(
            out,
            "Response time starts when a request is due, service time when it is sent: only response time includes the wait."
        )?;
    }
    Ok(())
}

/// A row of the table: its name and the times in its columns.
type Row = (String, Vec<String>);

fn censored_row(name: &str, times: &CensoredTimes) -> Option<Row> {
    let percentiles = columns().map(|column| column.quantile).chain([1.0]).map(|at| times.percentile(at));
    let all = [times.mean()].into_iter().chain(percentiles).map(|time| marked(time, show_time_ns));
    (!times.lower_bound().is_empty()).then(|| (name.to_owned(), all.collect()))
}

fn histogram_row(name: &str, times: &Histogram) -> Option<Row> {
    let percentiles = columns().map(|column| times.quantile_ns(column.quantile));
    let all = [times.mean_ns() as u64].into_iter().chain(percentiles).chain([times.max_ns()]);
    (!times.is_empty()).then(|| (name.to_owned(), all.map(show_time_ns).collect()))
}

/// Writes the steps of a session, and how its iterations ended.
fn write_steps(out: &mut String, http: &HttpTrial) -> std::fmt::Result {
    let (Some(plan), Some(script)) = (&http.plan.script, &http.script) else { return Ok(()) };
    if !plan.is_session() {
        return Ok(());
    }
    let Iterations { begun, completed, failed } = script.iterations;
    writeln!(
        out,
        "\nIterations   {} begun, {} completed, {} failed, {} unfinished at the end",
        show_count(begun),
        show_count(completed),
        show_count(failed),
        show_count(begun - completed - failed),
    )?;
    let width = script.steps.iter().map(|step| step.name.chars().count()).max().unwrap_or(0).clamp(4, 40);
    writeln!(
        out,
        "{:<width$}{:>12}{:>10}{:>10}{:>10}{:>10}",
        "Step", "completed", "failed", "p50", "p99", "max"
    )?;
    for step in &script.steps {
        let times = [0.5, 0.99, 1.0].map(|quantile| match step.response_time.is_empty() {
            true => "–".to_owned(),
            false => show_time_ns(step.response_time.quantile_ns(quantile)),
        });
        let [p50, p99, max] = times;
        let (completed, failed) = (show_count(step.completed), show_count(step.failed));
        writeln!(out, "{:<width$}{completed:>12}{failed:>10}{p50:>10}{p99:>10}{max:>10}", step.name)?;
    }
    Ok(())
}

fn write_failures(out: &mut String, http: &HttpTrial) -> std::fmt::Result {
    for (heading, errors) in [
        ("Retried attempts", &http.retried_errors),
        ("Failed requests", &http.errors),
        ("Failed connections", &http.connection_errors),
    ] {
        if errors.total() > 0 {
            writeln!(out, "\n{heading}")?;
        }
        for (class, n) in errors.iter() {
            writeln!(out, "  {:<18}{:>12}  {}", class.name(), show_count(n), class.meaning())?;
        }
    }
    if !http.failed_at.is_empty() {
        let each = http.failed_at.iter().map(|(address, errors)| {
            let classes = errors.iter().map(|(class, n)| format!("{} {class}", show_count(n)));
            format!("{address}: {}", classes.collect::<Vec<_>>().join(", "))
        });
        writeln!(out, "\nFailed at    {}", each.collect::<Vec<_>>().join("; "))?;
    }
    let failed = http.errors.total() + http.retried_errors.total() > 0;
    if !http.statuses.is_empty() && (failed || http.statuses.keys().any(|&status| status != 200)) {
        let statuses: Vec<String> =
            http.statuses.iter().map(|(status, n)| format!("{status}: {}", show_count(*n))).collect();
        writeln!(out, "\nStatuses     {}", statuses.join(", "))?;
    }
    Ok(())
}

fn write_generator(out: &mut String, http: &HttpTrial) -> std::fmt::Result {
    let cpu = &http.cpu;
    let per_request = if http.counts.sent > 0 {
        let used_s = cpu.user_s + cpu.system_s - cpu.spin_s;
        format!(", {:.1} µs per request", used_s.max(0.0) * 1e6 / http.counts.sent as f64)
    } else {
        String::new()
    };
    let spin = if cpu.spin_s > 0.0 { format!(", {:.2} s polling", cpu.spin_s) } else { String::new() };
    writeln!(
        out,
        "\nGenerator    busiest thread {:.0} % busy; {:.2} s user, {:.2} s system{spin}{per_request}; {} memory",
        cpu.busiest_loop_ratio * 100.0,
        cpu.user_s,
        cpu.system_s,
        show_bytes(cpu.max_resident_bytes),
    )?;
    let law = &http.littles_law;
    writeln!(
        out,
        "Little's law {:.2} in flight on average; rate × service time = {:.2}",
        law.mean_in_flight, law.rate_times_time
    )
}

/// Writes a table of the machines, if other machines made the load.
fn write_machines(out: &mut String, http: &HttpTrial) -> std::fmt::Result {
    let rows = report::machine_rows(http);
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let head = report::MACHINE_COLUMNS.map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let widths: Vec<usize> = (0..report::MACHINE_COLUMNS.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("  {cell:>width$}"),
        });
        writeln!(out, "{}", cells.collect::<String>())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
