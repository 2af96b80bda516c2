"""One pipeline over several evaluators: work goes where it is answered soonest."""
