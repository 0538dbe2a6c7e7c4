//! Inputs of other shapes: an op refuses them as it is built, with their names, or can be planned and run.

use super::run::{Setting, run_f64};
use super::{Case, Given};
use crate::op::Type;
use crate::plan::{Options, Plan};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The input with a longer last axis, an axis more, and an axis less.
fn others(given: &Given) -> Vec<Given> {
    let with = |shape: Vec<usize>| Given { ty: Type { shape, ..given.ty.clone() }, ..given.clone() };
    let shape = &given.ty.shape;
    let mut others = vec![with([&shape[..], &[2]].concat())];
    if let Some((last, rest)) = shape.split_last() {
        others.extend([with([rest, &[last + 1]].concat()), with(rest.to_vec())]);
    }
    others
}

/// Gives each input of a case other shapes in turn; tells how many of them were refused.
pub(super) fn refused(case: &Case) -> Result<usize, String> {
    let mut refused = 0;
    for (i, given) in case.inputs.iter().enumerate() {
        for other in others(given) {
            let ty = other.ty.clone();
            let mut inputs = case.inputs.clone();
            inputs[i] = other;
            let other = Case { inputs, ..case.clone() };
            let built = catch_unwind(AssertUnwindSafe(|| {
                let setting = Setting::new(&other)?;
                let planned = Plan::<f64>::new(&setting.graph, &setting.wanted(), case.rows, &Options::default());
                Ok(planned.map(|mut plan| {
                    run_f64(&mut plan, &setting, case.rows, &setting.params, &setting.reals);
                }))
            }));
            let fail = |what: String| format!("{case:?} with x{i} {ty}: {what}");
            match built {
                Err(_) => return Err(fail("panics".into())),
                Ok(Ok(planned)) => planned.map_err(|error| fail(format!("is built, but not planned: {error}")))?,
                Ok(Err(error)) => {
                    let (refusal, named): (operant_base::Error, _) = (error, format!("x{i} {ty}"));
                    if case.alone && !refusal.to_string().contains(&named) {
                        return Err(fail(format!("refused without its name: {refusal}")));
                    }
                    refused += 1;
                }
            }
        }
    }
    Ok(refused)
}
