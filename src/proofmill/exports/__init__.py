"""Export tasks and a grader as a package for another trainer or evaluation framework.

    packages            write the package: tasks, grader, prompts, card, and this project's wheel
    graded_tasks        read the tasks of such a package, and grade attempts at them
    direct_calls        call its judges, without journal and budget
    for_inspect, for_verifiers, for_trl, for_nemo_gym      what each framework expects, built from graded_tasks

An exported package needs the dependencies of `proofmill[verifier]` and its framework, and nothing else of this project.
An attempt without a grade is never 0: each framework gets its own word for it.
"""
