//! The tables `[[goals]]`.

use std::{ops::Range, time::Duration};

use record::{
    Goal, GoalQuantity, HttpPlan,
    percentile::PERCENTILES,
    quantity::of_requests,
    units::{parse_rate, parse_ratio, parse_size, parse_time, show_nominal_time_ns, show_number},
};
use settings::{Reader, Table, Value, suggestion};

/// Goals on an audit's findings: the key, the goal's name if it allows none, the noun, and the quantity.
pub(super) const FINDINGS: [(&str, &str, &str, GoalQuantity); 3] = [
    ("lost", "nothing lost", "lost", GoalQuantity::Lost),
    ("duplicated", "nothing duplicated", "duplicated", GoalQuantity::Duplicated),
    ("corrupt", "nothing corrupt", "corrupt", GoalQuantity::Corrupt),
];

/// Why a search must not have a goal with a least value.
pub(super) const GETS_BETTER: &str = "a search cannot use a least value, because a larger load meets it more easily: give the largest \
                                      value that a quantity may have (at_most, or <=)";

pub(super) struct ParsedGoal {
    pub(super) goal: Goal,
    pub(super) span: Range<usize>,
}

/// Reads all goals. A table with several bounds yields one goal for each bound.
pub(super) fn read(reader: &mut Reader<'_>, table: &mut Table<'_, '_>) -> Vec<ParsedGoal> {
    let mut goals: Vec<ParsedGoal> = Vec::new();
    let Some(value) = table.take("goals") else { return goals };
    for value in reader.array(value, "tables [[goals]]") {
        for goal in read_one(reader, value) {
            if goals.iter().any(|other| other.goal.name == goal.goal.name) {
                let message = format!("the goal '{}' is given twice", goal.goal.name);
                reader.mistake(goal.span.clone(), message);
            } else {
                goals.push(goal);
            }
        }
    }
    goals
}

fn read_one(reader: &mut Reader<'_>, value: &Value<'_>) -> Vec<ParsedGoal> {
    let mut table = reader.table(value, "a table [[goals]]");
    let mistakes_before = reader.mistake_count();
    let name = table.take("name").and_then(|value| reader.text(value));
    let mut goals = Vec::new();
    let (errors, error_ratio) = (table.take("errors"), table.take("error_ratio"));
    if let (Some(_), Some(second)) = (errors, error_ratio) {
        reader.mistake(second.span(), "'errors' sets the same bound: leave out one of them");
    }
    if let Some(value) = errors.or(error_ratio)
        && let Some(ratio) = read_ratio(reader, value)
    {
        goals.push((Goal::errors(ratio), value.span()));
    }
    for is_response in [true, false] {
        for percentile in PERCENTILES {
            let key = if is_response { percentile.key } else { percentile.connect_key };
            let Some(value) = table.take(key) else { continue };
            let Some(text) = reader.text_such_as(value, "a time in quotes, such as \"10s\"") else {
                continue;
            };
            let Some(bound) = reader.checked(value, parse_bound(text)) else { continue };
            if bound.is_zero() {
                reader.mistake(value.span(), "no answer takes 0 s; give a bound such as \"10ms\"");
                continue;
            }
            let make = if is_response { Goal::response_time } else { Goal::connect_time };
            goals.push((make(percentile.quantile, bound.as_nanos() as u64), value.span()));
        }
    }
    for (key, none, noun, quantity) in FINDINGS {
        let Some(value) = table.take(key) else { continue };
        let Some(ratio) = read_ratio(reader, value) else { continue };
        let name = if ratio == 0.0 {
            none.to_owned()
        } else {
            format!("{noun} ≤ {} %", show_number(ratio * 100.0))
        };
        goals.push((Goal { name, quantity, loss_ratio: ratio }, value.span()));
    }
    if let Some(goal) = read_given(reader, &mut table) {
        goals.push(goal);
    }
    let span = table.span();
    table.finish(reader);
    if goals.is_empty() && reader.mistake_count() == mistakes_before {
        reader.mistake(
            span,
            "this goal bounds nothing: add errors = 0.0, p99 = \"10ms\", connect_p99 = \"900ms\", or a quantity with at_most or \
             at_least",
        );
    }
    let named = |(mut goal, span): (Goal, Range<usize>)| {
        if let Some(name) = name.filter(|name| !name.is_empty() && *name != goal.name) {
            goal.name = format!("{name}: {}", goal.name);
        }
        ParsedGoal { goal, span }
    };
    goals.into_iter().map(named).collect()
}

/// Reads `quantity = "wall_s"` with `at_most`, `at_least` or both. The check whether the quantity exists comes later, for each setting.
fn read_given(reader: &mut Reader<'_>, table: &mut Table<'_, '_>) -> Option<(Goal, Range<usize>)> {
    let (least, most) = (table.take("at_least"), table.take("at_most"));
    let Some(value) = table.take("quantity") else {
        for value in [least, most].into_iter().flatten() {
            reader.mistake(value.span(), "'quantity' is missing: name the one to bound, such as \"wall_s\"");
        }
        return None;
    };
    let name = reader.text(value)?.to_owned();
    if least.is_none() && most.is_none() {
        return reader.refuse(value.span(), "this quantity has no bound: add at_most or at_least");
    }
    let mut bound = |value: Option<&Value<'_>>| match value {
        Some(value) => read_bound_of(reader, &name, value).map(Some),
        None => Some(None),
    };
    let (at_least, at_most) = (bound(least)?, bound(most)?);
    if let (Some(least), Some(most)) = (at_least, at_most)
        && least > most
    {
        reader.mistake(value.span(), format!("no value is at least {least} and at most {most}"));
    }
    let words = [("≥", least, at_least), ("≤", most, at_most)];
    let words = words.into_iter().filter_map(|(sign, value, bound)| match value?.get_ref().as_str() {
        Some(text) => Some(format!("{sign} {}", text.trim())),
        None => Some(format!("{sign} {}", show_number(bound?))),
    });
    let words = format!("{name} {}", words.collect::<Vec<_>>().join(" and "));
    let quantity = GoalQuantity::Declared { quantity: name, at_most, at_least };
    Some((Goal { name: words, quantity, loss_ratio: 0.0 }, value.span()))
}

/// Reads a bound: a number in the quantity's unit, or a text with a unit such as `"12s"`, `"100MB"`, `"900Mbit"`.
fn read_bound_of(reader: &mut Reader<'_>, quantity: &str, value: &Value<'_>) -> Option<f64> {
    let what = "a number in the quantity's unit, or a text such as \"12s\" or \"100MB\"";
    let text = &*reader.number_or_text(value, what)?;
    if !value.get_ref().is_str() {
        let number = number(text);
        if number.is_none() {
            reader.mistake(value.span(), format!("'{text}' is not a bound"));
        }
        return number;
    }
    reader.checked(value, parse_bound_of(quantity, text))
}

fn number(text: &str) -> Option<f64> {
    text.replace('_', "").parse::<f64>().ok().filter(|number| number.is_finite())
}

/// Parses a bound with a unit that fits the quantity's name.
fn parse_bound_of(quantity: &str, text: &str) -> Result<f64, String> {
    let error_text = |error: record::units::UnitError| error.to_string();
    match quantity {
        name if name.ends_with("_bit_per_s") => {
            lab::link::text::parse_rate(text).map(|rate| rate.unwrap_or_default() as f64)
        }
        name if name.ends_with("_bytes") => parse_size(text).map(|size| size as f64).map_err(error_text),
        name if name.ends_with("_per_s") => parse_rate(text).map_err(error_text),
        name if name.ends_with("_us") => {
            parse_time(text).map(|time| time.as_nanos() as f64 / 1e3).map_err(error_text)
        }
        name if name.ends_with("_s") => parse_time(text).map(|time| time.as_secs_f64()).map_err(error_text),
        name if name.ends_with("_ratio") => parse_ratio(text).map_err(error_text),
        _ => number(text).ok_or_else(|| format!("'{text}' is not a number")),
    }
}

/// Parses a goal of a search of requests: a quantity and its largest value, such as `first_byte_p99_us <= 5ms`. A bare number is in
/// the quantity's unit.
///
/// # Errors
/// The mistake in the text.
pub fn parse_goal(text: &str) -> Result<Goal, String> {
    if text.contains(['>', '≥']) {
        return Err(GETS_BETTER.to_owned());
    }
    let (name, bound) = goal_parts(text).ok_or_else(|| {
        format!(
            "'{text}' is not a goal: write a quantity, <= and a bound, such as 'first_byte_p99_us <= 5ms'"
        )
    })?;
    let known = of_requests();
    let names = known.iter().map(|known| &*known.name);
    if !names.clone().any(|known| known == name) {
        let hint = suggestion(name, names.clone());
        let known = names.collect::<Vec<_>>().join(", ");
        return Err(format!("requests have no quantity '{name}'{hint} (known: {known})"));
    }
    let (at_most, shown) = match number(bound) {
        Some(number) => (number, show_number(number)),
        None => (parse_bound_of(name, bound)?, bound.to_owned()),
    };
    let quantity =
        GoalQuantity::Declared { quantity: name.to_owned(), at_most: Some(at_most), at_least: None };
    Ok(Goal { name: format!("{name} ≤ {shown}"), quantity, loss_ratio: 0.0 })
}

/// Splits a goal's text into the quantity and its bound.
pub fn goal_parts(text: &str) -> Option<(&str, &str)> {
    let (name, bound) = text.split_once("<=").or_else(|| text.split_once('≤'))?;
    Some((name.trim(), bound.trim()))
}

/// Reads a share from 0 to below 1: a number, or text such as `"0.1%"`.
fn read_ratio(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<f64> {
    let text = reader.number_or_text(value, "a share such as 0.001 or \"0.1%\"")?;
    let ratio = reader.checked(value, parse_ratio(&text))?;
    if ratio >= 1.0 {
        return reader.refuse(value.span(), "every trial would meet this goal; give a share below 1");
    }
    Some(ratio)
}

/// The reason why slow answers cannot make any trial of this plan miss a goal; `None` if they can.
pub fn unreachable(goal: &Goal, plan: &HttpPlan) -> Option<String> {
    let is_above = goal.quantity.bound_ns().is_some_and(|bound_ns| bound_ns > plan.timeout_ns);
    is_above.then(|| {
        format!(
            "no request can be this slow: a request that takes longer than the timeout of {} has failed; give a longer \
             timeout or a lower bound",
            show_nominal_time_ns(plan.timeout_ns)
        )
    })
}

/// Parses the longest time that meets a goal. The unit is required: some tools take a bare number as seconds, others as milliseconds, and a
/// bound that is far too large would let every trial pass.
///
/// # Errors
/// The mistake in the text.
pub fn parse_bound(text: &str) -> Result<Duration, String> {
    let bound = parse_time(text).map_err(|error| error.to_string())?;
    let number = text.trim_end();
    let is_bare = number.ends_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '_'));
    if is_bare && !bound.is_zero() {
        return Err(format!("'{number}' has no unit; write {number}ms or {number}s"));
    }
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_of_a_line_bounds_a_quantity() {
        let goal = parse_goal(" first_byte_p99_us<= 5ms ").unwrap();
        let quantity = |at_most| GoalQuantity::Declared {
            quantity: "first_byte_p99_us".to_owned(),
            at_most: Some(at_most),
            at_least: None,
        };
        assert_eq!((goal.name.as_str(), goal.quantity), ("first_byte_p99_us ≤ 5ms", quantity(5_000.0)));
        let bare = parse_goal("first_byte_p99_us ≤ 7_500").unwrap();
        assert_eq!((bare.name.as_str(), bare.quantity), ("first_byte_p99_us ≤ 7500", quantity(7_500.0)));
        for (text, why) in [
            ("first_byte_p99_us", "is not a goal"),
            ("first_byte_p99_us >= 5ms", "a larger load meets it more easily"),
            ("first_byte_p999_us <= 5ms", "did you mean 'first_byte_p99_us'?"),
            ("first_byte_p99_us <= 5 apples", "'5 apples' is not a time"),
        ] {
            let told = parse_goal(text).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn a_bound_without_a_unit_is_refused() {
        for (text, number) in [("10", "10"), ("0.5", "0.5"), ("1_000 ", "1_000")] {
            let expected = format!("'{number}' has no unit; write {number}ms or {number}s");
            assert_eq!(parse_bound(text), Err(expected));
        }
        assert_eq!(parse_bound("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(parse_bound("10 s"), Ok(Duration::from_secs(10)));
        // The caller refuses a bound of 0.
        assert_eq!(parse_bound("0"), Ok(Duration::ZERO));
        assert!(parse_bound("soon").unwrap_err().contains("'soon' is not a time"));
    }
}
