"""Run tasks of other frameworks in environments of their own, as sources of problems and as graders.

inspect_tasks       the source and the grader `inspect-task`
inspect_child       the program that runs in the environment of inspect_ai; it imports nothing of this project
"""
